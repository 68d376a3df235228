"""Keeps quick estimates of capacities by content, so that a later plan does not compute them again."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Protocol, cast

from penstock.performance.calibration.first_token_regression import Software
from penstock.planning.candidates.replica_capacity import Capacity, CapacityOf, Option, RateCurve
from penstock.planning.spec.plan_types import WorkloadPlan


class EstimateStore(Protocol):
    """Estimates of earlier processes."""

    def read(self, key: str) -> object:
        """Return the document that was kept under a key; None if there is none."""

    def write(self, key: str, document: object) -> None:
        """Keep a document."""


@dataclass(frozen=True, slots=True)
class KeptEstimates:
    """A capacity function whose results are kept in a store.

    Disaggregated units are not kept. The store must change with the program and with the shipped measurements.
    """

    compute: CapacityOf
    """Function whose results depend on the option, the lengths and the SLO only, not on the rate of the workload."""
    store: EstimateStore
    corrections: object
    """The user's own corrections of predictions."""
    _digests: dict[int, tuple[object, str]] = field(default_factory=dict)

    def __call__(self, option: Option, workload: WorkloadPlan) -> tuple[Capacity, ...]:
        """Return the capacities of an option for each length; compute them if they are not known."""
        if option.disaggregated is not None:
            return self.compute(option, workload)
        key = self._key(option, workload)
        kept = _parse(self.store.read(key), len(workload.shares))
        if kept is not None:
            return kept
        found = self.compute(option, workload)
        self.store.write(key, [_document(entry) for entry in found])
        return found

    def _key(self, option: Option, workload: WorkloadPlan) -> str:
        deployment = option.deployment
        large = (deployment.model, deployment.accelerator, *(share.bucket.rows for share in workload.shares))
        lengths = [(share.bucket.input_tokens, share.bucket.output_tokens) for share in workload.shares]
        settings = deployment.engine, deployment.parallelism, deployment.cache_dtype, deployment.speculative
        small = option.measured_engine, option.speculation, *settings, lengths, workload.slo, self.corrections
        return _digest((*(self._digest_of(item) for item in large), small))

    def _digest_of(self, item: object) -> str:
        """Return a digest of a large object, which is computed once for each object."""
        known = self._digests.get(id(item))
        if known is None:
            known = self._digests[id(item)] = (item, _digest(item))
        return known[1]


def _digest(item: object) -> str:
    return hashlib.sha256(repr(item).encode()).hexdigest()


def _document(capacity: Capacity) -> dict[str, object]:
    """Return a capacity as JSON types."""
    software = capacity.software
    plain = None if software is None else {**asdict(software), "date": software.date.isoformat()}
    return {**asdict(capacity), "software": plain}


def _parse(document: object, lengths: int) -> tuple[Capacity, ...] | None:
    """Return kept capacities; None if there are none or if the document does not have one capacity per length."""
    if not isinstance(document, list) or len(document) != lengths:
        return None
    try:
        return tuple(_capacity(**entry) for entry in document)
    except (KeyError, TypeError, ValueError):
        return None


def _capacity(*, curve: Mapping[str, Any], software: Mapping[str, str] | None, **plain: Any) -> Capacity:  # noqa: ANN401 - JSON
    dated = None if software is None else {**software, "date": date.fromisoformat(software["date"])}
    return Capacity(
        curve=RateCurve(errors=tuple(curve["errors"]), requests_per_s=tuple(curve["requests_per_s"])),
        software=None if dated is None else Software(**cast("Any", dated)),
        **plain,
    )
