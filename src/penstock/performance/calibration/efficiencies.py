"""Holds the evidence for predictions: measured step times, first-token overhead, and the held-out errors of both."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.fleet.deployment import Deployment
from penstock.model import ModelSpec
from penstock.performance.calibration.error_summary import EVERYWHERE, Logs
from penstock.performance.calibration.first_token_regression import Calibration, Factors, FittedLevel, Software
from penstock.performance.calibration.first_token_waits import FIRST
from penstock.performance.calibration.own_correction import OwnCorrection, fingerprint_of
from penstock.performance.similarity.cases import (
    WORDS,
    DrivenEngine,
    combine_codes,
    hash_strings,
    labels_of_run,
    shape_of,
)
from penstock.performance.similarity.covariance import Spreads
from penstock.performance.similarity.draft_evidence import DraftEvidence
from penstock.performance.similarity.posterior import Evidence, Measured
from penstock.performance.step.step_work import ReplicaWork

_DIGITS = 6

Novelty = Literal["load", "shape", "configuration", "model", "accelerator"]
"""The part of a deployment that was never measured. The interval of a prediction comes from the errors of predictions
for which the same part was held out."""
_CURVE = 3
"""Minimum number of measured loads for a setup, or of measured rows for a stack, to count as measured. One or two
measurements could be outliers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSetups:
    """Measurements of one setup."""

    rows: int = 0
    loads: frozenset[tuple[float, int, int]] = frozenset()
    """Measured loads, each as (users, input tokens, output tokens)."""
    software: Software | None = None
    """Software of the newest measurement with a known day. None if no measurement has a known day."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Efficiencies:
    """Evidence from which speeds are predicted, with the errors of held-out predictions."""

    evidence: Evidence
    intervals: Mapping[Novelty, Mapping[str, Logs]]
    """P10 and P90 of the logarithm of measured over predicted time, in units of the standard deviation that the
    prediction states. The outer key is the held-out part. The inner key is the accelerator. The entry with the empty
    key applies to all accelerators without an entry."""
    first: Calibration
    """Fit of the part of the time to first token that the engine's steps do not explain. The terms of the fit are
    listed in `first_token_waits.FIRST`."""
    first_spreads: Mapping[Novelty, Logs]
    repeats: Logs
    """P10 and P90 of the ratio of two measurements of one setup and load, newer over older, as logarithms."""
    first_repeats: Logs
    """The same for the time to first token."""
    fitted_on: str
    drafted: DraftEvidence | None = None
    """Measured runs with drafts. None while they are fitted, which takes the rest of the evidence."""
    corrections: tuple[OwnCorrection, ...] = ()
    """Corrections by the user's own runs, at most one for each setup."""

    def correction_of(self, deployment: Deployment, measured_engine: str) -> OwnCorrection | None:
        """Return the correction of exactly this setup, or None if the user has not measured it."""
        if not self.corrections:
            return None
        setup = fingerprint_of(deployment, measured_engine)
        return next((one for one in self.corrections if one.setup == setup), None)

    def interval(self, novelty: Novelty, accelerator: str, uncertainty: float) -> Logs:
        """Return P10 and P90 of measured over predicted time, as logarithms.

        P10 and P90 are multiples of the standard deviation `uncertainty`. The multiples come from held-out predictions
        with the same unmeasured part.
        """
        found = self.intervals[novelty]
        low, high = found.get(accelerator, found[EVERYWHERE])
        return low * uncertainty, high * uncertainty

    def engines(self, accelerator: str, model: ModelSpec | None = None) -> tuple[str, ...]:
        """Return the engines that have at least three measured serving rows on an accelerator.

        If a model is given, only engines with at least three serving rows for this model are returned. Otherwise the
        fastest engine would often be the one with the most wrong extrapolation. If no engine has three rows for the
        model, the model is ignored.
        """
        texts = self.evidence.measured.texts
        columns = zip(texts["part"], texts["engine"], texts["family"], strict=True)
        rows = Counter((word, family) for part, word, family in columns if part == accelerator)
        tried: dict[str, int] = Counter()
        own: dict[str, int] = Counter()
        for (word, family), count in rows.items():
            engine = DrivenEngine.parse(word)
            if engine.serving:
                tried[engine.name] += count
                own[engine.name] += count if model is not None and family == shape_of(model) else 0
        found = [engine for engine, count in own.items() if count >= _CURVE]
        return tuple(sorted(found or (engine for engine, count in tried.items() if count >= _CURVE)))

    def engines_of(self, vendor: str) -> tuple[str, ...]:
        """Return the engines that have measured serving rows on any accelerator of a vendor."""
        texts = self.evidence.measured.texts
        words = {word for made_by, word in zip(texts["vendor"], texts["engine"], strict=True) if made_by == vendor}
        return tuple(sorted(engine.name for engine in set(map(DrivenEngine.parse, words)) if engine.serving))

    def measurements_of(self, work: ReplicaWork, engine: str, label: str = "setup") -> ObservedSetups:
        """Return the measurements that have the same label as a deployment.

        Two runs have the same label `setup` if model, accelerator, engine, format and split are equal.
        """
        found = self.rows_of(work, engine, label)
        if not len(found):
            return ObservedSetups()
        cases, dated = self.evidence.cases, found[~self.evidence.cases.undated[found]]
        newest = dated[np.argmax(cases.day[dated])] if len(dated) else None
        loads = zip(cases.users[found], cases.input_tokens[found], cases.output_tokens[found], strict=True)
        return ObservedSetups(
            rows=len(found),
            loads=frozenset((float(users), round(inputs), round(outputs)) for users, inputs, outputs in loads),
            software=None if newest is None else self._software(int(newest)),
        )

    def rows_of(self, work: ReplicaWork, engine: str, label: str = "setup") -> npt.NDArray[np.intp]:
        """Return the indices of the measured rows that have the same label as a deployment."""
        return np.flatnonzero(self._shares(work, engine, label))

    def novelty(self, work: ReplicaWork, engine: str, seen: ObservedSetups) -> Novelty:
        """Return the part of a deployment that serving measurements do not cover.

        `seen` holds the measurements of the deployment's exact setup.
        """
        if len(seen.loads) >= _CURVE:
            return "shape"
        if self._shares(work, engine, "stack").sum() < _CURVE:
            return "accelerator"
        return "configuration" if self._shares(work, engine, "family stack").any() else "model"

    def _shares(self, work: ReplicaWork, engine: str, label: str) -> npt.NDArray[np.bool_]:
        spoken = labels_of_run(work.deployment, engine)
        asked = {word: hash_strings([spoken[word]]) for word in WORDS}
        return np.asarray(self.evidence.cases.labels[label] == combine_codes(asked, label)[0])

    def _software(self, row: int) -> Software:
        day = date.fromordinal(int(self.evidence.cases.day[row]))
        return Software("online", self.evidence.measured.texts["version"][row], day)


def to_document(efficiencies: Efficiencies) -> dict[str, Any]:
    """Return the evidence as plain values, rounded to six significant digits and without the arrays.

    `to_arrays` returns the arrays: the measured rows and their weights.
    """
    return {
        "fitted_on": efficiencies.fitted_on,
        "spreads": efficiencies.evidence.spreads.to_document(),
        "intervals": {
            name: {part: [_round(value) for value in span] for part, span in parts.items()}
            for name, parts in efficiencies.intervals.items()
        },
        "first_spreads": {name: [_round(value) for value in span] for name, span in efficiencies.first_spreads.items()},
        "repeats": [_round(value) for value in efficiencies.repeats],
        "first_repeats": [_round(value) for value in efficiencies.first_repeats],
        "first": _calibration_entries(efficiencies.first),
    }


def to_arrays(efficiencies: Efficiencies) -> dict[str, npt.NDArray[Any]]:
    """Return the measured rows and their solved weights, as arrays."""
    return {**efficiencies.evidence.measured.to_arrays(), "solved": efficiencies.evidence.solved}


def from_document(document: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Efficiencies:
    """Parse the document of `to_document` and the arrays of `to_arrays`."""
    return Efficiencies(
        evidence=Evidence(
            measured=Measured.from_arrays(arrays),
            spreads=Spreads.from_document(document["spreads"]),
            solved=arrays["solved"],
        ),
        intervals={
            name: {part: (span[0], span[1]) for part, span in parts.items()}
            for name, parts in document["intervals"].items()
        },
        first=_calibration(document["first"]),
        first_spreads={name: (span[0], span[1]) for name, span in document["first_spreads"].items()},
        repeats=(document["repeats"][0], document["repeats"][1]),
        first_repeats=(document["first_repeats"][0], document["first_repeats"][1]),
        fitted_on=document["fitted_on"],
    )


def _calibration_entries(calibration: Calibration) -> list[dict[str, Any]]:
    return [
        {
            "path": list(path),
            "rows": fitted.rows,
            "beyond": {name: _round(value) for name, value in zip(FIRST, fitted.slowdowns.tolist(), strict=True)},
            "factors": {
                "family": _table(fitted.factors.family),
                "software": _table({str(key): value for key, value in fitted.factors.software.items()}),
                "configuration": _table(fitted.factors.configuration),
            },
        }
        for path, fitted in sorted(calibration.by_path.items())
    ]


def _table(logs: Mapping[str, float]) -> dict[str, float]:
    return {key: _round(value) for key, value in sorted(logs.items())}


def _calibration(entries: Sequence[Mapping[str, Any]]) -> Calibration:
    return Calibration(
        by_path={
            tuple(entry["path"]): FittedLevel(
                slowdowns=np.array([entry["beyond"][name] for name in FIRST]),
                rows=entry["rows"],
                factors=_factors(entry["factors"]),
            )
            for entry in entries
        }
    )


def _factors(tables: Mapping[str, Mapping[str, float]]) -> Factors:
    return Factors(
        family=tables["family"],
        software={_software(key): value for key, value in tables["software"].items()},
        configuration=tables["configuration"],
    )


def _software(text: str) -> Software:
    """Parse a text such as `online 0.19.0 2026-03-01` into scenario, release and day.

    The release can be empty or contain spaces. The scenario and the day are never empty and contain no spaces.
    """
    scenario, _, rest = text.partition(" ")
    version, _, day = rest.rpartition(" ")
    return Software(scenario, version, date.fromisoformat(day))


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
