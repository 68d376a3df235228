"""Defines the fleet for the gateway's processes: endpoint records, models and SLOs. One file stores the fleet."""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import inf, log
from pathlib import Path

import numpy as np

from penstock.errors import UsageError
from penstock.gateway.state.access_rules import Access
from penstock.gateway.state.routed_device import RoutedDevice
from penstock.routing.admission import hold_seconds
from penstock.routing.autoscaler.sustained import LoadKind, sustained_requests_per_s
from penstock.routing.records import CLASSES, ENDPOINT, Records, default_parameters, new_endpoints
from penstock.workload import Overload

_CHAT = LoadKind(share=1.0, input_tokens=1024, output_tokens=256)
_MAX_MODELS = 60
"""Maximum number of models and adapters together. Each model and each adapter has one bit in an endpoint's record."""
_MAX_LISTED = 10
_WAKE_SPARE_S = 5.0


def requestable_names(models: Sequence[str], adapters: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return all models of a fleet, followed by all adapters, without duplicates."""
    return (*models, *dict.fromkeys(name for names in adapters for name in names))


def list_names(names: Sequence[str]) -> str:
    """Return a list of names as text for an error message.

    If there are more than ten names, only the first ten are listed.
    """
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more (/v1/models)" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedClass:
    """Class of requests with similar lengths and one SLO."""

    name: str
    model: str
    input_tokens: int
    output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None = None
    requests_per_s: float = 1.0
    """Peak rate of the class in requests per second, from the fleet's routes. Classes are weighted by this rate."""
    overload: Overload = "serve"
    """What may be done with requests of this class while the fleet is overloaded."""
    least_ttft_s: float = 0.0
    """This and the next: the least limits that a client may ask for in headers."""
    least_tpot_s: float = 0.0

    @property
    def hold_s(self) -> float:
        """Seconds for which a request of this class may be held at the gateway; 0 if it may not be held."""
        return hold_seconds(self.ttft_s or inf, self.e2e_s or inf) if self.overload == "hold" else 0.0

    def distance(self, input_tokens: int, output_tokens: int) -> float:
        """Return the distance of given lengths from the lengths of this class, as a sum of absolute log ratios."""
        return abs(log(input_tokens / self.input_tokens)) + abs(log(output_tokens / self.output_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedPool:
    """Pool of identical replicas. Replicas that are not up are included."""

    name: str
    model: str
    most: int
    """Number of replicas of this pool in the fleet file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoutedFleet:
    """Description of a fleet for the pickers, the scraper and Envoy's configuration."""

    name: str
    generation: int = 0
    """Number of reloads so far."""
    addresses: tuple[str, ...]
    pools: tuple[str, ...]
    """Name of the pool of each endpoint."""
    engines: tuple[str, ...]
    """Engine of each endpoint: vllm or sglang."""
    models: tuple[str, ...]
    served: tuple[str, ...]
    """Base model of each endpoint."""
    adapters: tuple[tuple[str, ...], ...] = ()
    """Names of the LoRA adapters of each endpoint. The tuple is empty if no endpoint has an adapter."""
    classes: tuple[RoutedClass, ...]
    followed: tuple[str, ...] = ()
    """Endpoints as written in the fleet file. Empty unless their DNS names are resolved periodically."""
    endpoints: Records
    """Endpoint record of each endpoint. Only the constant fields are filled in."""
    kinds: tuple[RoutedPool, ...] = ()
    kind_records: Records = field(default_factory=lambda: new_endpoints(0))
    """For each pool, the endpoint record of one of its replicas."""
    devices: tuple[RoutedDevice, ...] = ()
    """Devices that endpoints share."""
    critical: tuple[str, ...] | None = None
    """Tenants whose requests may say that a missed SLO of theirs weighs more; None: all."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise UsageError(
                "the fleet has no endpoints to route to; write host:port of each replica in the fleet file, "
                "such as `endpoints: [10.0.0.1:8000]`"
            )
        if len(self.names) > _MAX_MODELS:
            many = f"{len(self.names)} models and adapters"
            raise UsageError(
                f"{many} are too many for one gateway; split the fleet into parts of at most {_MAX_MODELS}"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the models and adapters that a request may name.

        The position of a name is the position of its bit in the endpoint records.
        """
        return requestable_names(self.models, self.adapters)

    @cached_property
    def bits(self) -> dict[str, int]:
        """Mapping from each model or adapter name to its bit in the endpoint records."""
        return {name: 1 << place for place, name in enumerate(self.names)}

    @cached_property
    def model_of(self) -> dict[str, str]:
        """Mapping from each model or adapter name to the name of the base model."""
        base = {model: model for model in self.models}
        for model, names in zip(self.served, self.adapters or ((),) * len(self.served), strict=True):
            base.update(dict.fromkeys(names, model))
        return base

    def with_access(self, access: Access | None) -> "RoutedFleet":
        """Return this fleet with the floors and the critical tenants of the access rules."""
        if access is None:
            return self
        floors, names = access.slo_floors, [item.name for item in self.classes]
        unknown = next((name for name in floors if name not in names), None)
        if unknown is not None:
            raise UsageError(f"slo_floors: the fleet has no class '{unknown}'; its classes are {list_names(names)}")
        classes = tuple(
            replace(item, least_ttft_s=floors[item.name].ttft_s, least_tpot_s=floors[item.name].tpot_s)
            if item.name in floors
            else item
            for item in self.classes
        )
        return replace(self, classes=classes, critical=access.critical)

    def parameters(self, pickers: int) -> Records:
        """Return the policy's parameters for this fleet, such as the SLO of each class and the number of pickers."""
        parameters = default_parameters()
        parameters["pickers"] = pickers
        for number, item in enumerate(self.classes[:CLASSES]):
            if item.tpot_s is not None:
                parameters["class_tpot_s"][0, number] = item.tpot_s
            if item.e2e_s is not None:
                parameters["class_e2e_s"][0, number] = item.e2e_s
        return parameters

    @cached_property
    def hold_s(self) -> float:
        """Longest time in seconds for which any request may be held at the gateway."""
        return max((item.hold_s for item in self.classes), default=0.0)

    @cached_property
    def wake_hold_s(self) -> float:
        """Seconds for which a picker keeps a request until its model is awake: two swaps, or 0 if no model sleeps."""
        return round(max((2 * device.swap_s + _WAKE_SPARE_S for device in self.devices), default=0.0), 3)

    def having(self, name: str) -> tuple[int, ...]:
        """Return the indices of endpoints that serve a model or an adapter."""
        adapters = self.adapters or ((),) * len(self.served)
        both = enumerate(zip(self.served, adapters, strict=True))
        return tuple(index for index, (model, names) in both if name == model or name in names)

    def weights(self) -> tuple[int, ...]:
        """Return each endpoint's relative capacity, from 1 to 100.

        Envoy chooses by these weights if no picker answers.
        """
        return self._weights

    @cached_property
    def _weights(self) -> tuple[int, ...]:
        kinds: dict[tuple[bytes, str], float] = {}
        rates = []
        for record, model in zip(self.endpoints, self.served, strict=True):
            kind = (record.tobytes(), model)
            if kind not in kinds:
                kinds[kind] = sustained_requests_per_s(record, self.load_of(model))
            rates.append(kinds[kind])
        max_rate = max(*rates, 1e-9)
        return tuple(max(1, round(100 * rate / max_rate)) for rate in rates)

    def load_of(self, model: str) -> tuple[LoadKind, ...]:
        """Return the load of a model according to its routes.

        A model without routes gets a chat load without an SLO.
        """
        classes = [item for item in self.classes if item.model == model]
        total = sum(item.requests_per_s for item in classes)
        return tuple(
            LoadKind(
                share=item.requests_per_s / total,
                input_tokens=item.input_tokens,
                output_tokens=item.output_tokens,
                ttft_s=item.ttft_s or inf,
                tpot_s=item.tpot_s or inf,
                e2e_s=item.e2e_s or inf,
            )
            for item in classes
        ) or (_CHAT,)

    def write(self, path: Path) -> None:
        """Write the fleet to a file for the other processes of the gateway."""
        header = {
            "name": self.name,
            "generation": self.generation,
            "addresses": self.addresses,
            "pools": self.pools,
            "engines": self.engines,
            "models": self.models,
            "served": self.served,
            "adapters": self.adapters,
            "followed": self.followed,
            "classes": [asdict(item) for item in self.classes],
            "kinds": [asdict(item) for item in self.kinds],
            "devices": [item.to_json() for item in self.devices],
            "critical": self.critical,
        }
        records = io.BytesIO()
        np.save(records, self.endpoints, allow_pickle=False)
        np.save(records, self.kind_records, allow_pickle=False)
        partial = path.with_suffix(".partial")
        partial.write_bytes(json.dumps(header).encode() + b"\n" + records.getvalue())
        partial.replace(path)

    @staticmethod
    def read(path: Path) -> "RoutedFleet":
        """Read a fleet from a file written by `write`."""
        first, _, records = path.read_bytes().partition(b"\n")
        header = json.loads(first)
        names = ("addresses", "pools", "engines", "models", "served", "followed")
        lists = {key: tuple(header[key]) for key in names}
        stream = io.BytesIO(records)
        endpoints, kind_records = np.load(stream, allow_pickle=False), np.load(stream, allow_pickle=False)
        if endpoints.dtype != ENDPOINT:
            raise UsageError(f"{path.name} is from another version of penstock; restart the gateway")
        classes = tuple(RoutedClass(**item) for item in header["classes"])
        return RoutedFleet(
            name=header["name"],
            generation=header["generation"],
            classes=classes,
            endpoints=endpoints,
            adapters=tuple(tuple(names) for names in header["adapters"]),
            kinds=tuple(RoutedPool(**item) for item in header["kinds"]),
            kind_records=kind_records,
            devices=tuple(RoutedDevice.from_json(item) for item in header["devices"]),
            critical=None if header["critical"] is None else tuple(header["critical"]),
            **lists,
        )
