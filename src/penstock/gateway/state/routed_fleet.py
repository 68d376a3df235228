"""What is routed to? A fleet's endpoints as records for the policy, its models and its promises, kept in one file."""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf, log
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import UsageError
from penstock.routing.autoscaler.sustained import LoadKind, sustained_requests_per_s
from penstock.routing.records import CLASSES, ENDPOINT, Records, default_parameters, new_endpoints

SHED_FRACTION: Final = 0.5
"""What may be shed is, where it is as likely to miss its promise as to keep it: it would take others with it.

Of a tenant beyond its share sooner, in proportion. At half as much again as capacity, nine in ten requests of one that
may be shed, good tokens/s and what the other keeps are 1,861 and 77% with the policy's own 0.9, 2,073 and 99% with 0.5,
2,011 and 100% with 0.2 (simulated, 6,000 requests to llama-3.1-70b on one H100 pair and one MI300X).
"""
_CHAT = LoadKind(share=1.0, input_tokens=1024, output_tokens=256)
_MAX_MODELS = 60
"""One bit each in an endpoint's record."""
_MAX_LISTED = 10


def asked_names(models: Sequence[str], adapters: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The models of a fleet, then their adapters, each once."""
    return (*models, *dict.fromkeys(name for names in adapters for name in names))


def listed(names: Sequence[str]) -> str:
    """Write names as somebody reads them who has to choose one: all, or the first ten."""
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more (/v1/models)" if more > 0 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedClass:
    """Requests of about one length, and what they are promised."""

    name: str
    model: str
    input_tokens: int
    output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None = None
    requests_per_s: float = 1.0
    """How many come at the peak: what the fleet's routes say, for how much each counts."""

    def distance(self, input_tokens: int, output_tokens: int) -> float:
        """How far lengths are from its own, in logarithms."""
        return abs(log(input_tokens / self.input_tokens)) + abs(log(output_tokens / self.output_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedPool:
    """Replicas of one kind, whether they are up or not."""

    name: str
    model: str
    most: int
    """Replicas the fleet file has."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoutedFleet:
    """Everything a picker, the scraper and Envoy's configuration need to know of a fleet."""

    name: str
    generation: int = 0
    """How often the fleet was read anew."""
    addresses: tuple[str, ...]
    pools: tuple[str, ...]
    """Of each endpoint."""
    engines: tuple[str, ...]
    """Of each endpoint, vllm or sglang."""
    models: tuple[str, ...]
    served: tuple[str, ...]
    """The model of each endpoint."""
    adapters: tuple[tuple[str, ...], ...] = ()
    """The LoRA adapters of each endpoint; empty where no endpoint has any."""
    classes: tuple[RoutedClass, ...]
    followed: tuple[str, ...] = ()
    """Endpoints as the fleet file writes them, where their names are looked up again and again."""
    endpoints: Records
    """What is fixed of each, and nothing yet of the rest."""
    kinds: tuple[RoutedPool, ...] = ()
    kind_records: Records = field(default_factory=lambda: new_endpoints(0))
    """A replica of each kind, as an endpoint."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise UsageError("the fleet has no endpoints to route to; fill in `endpoints`, one host:port per replica")
        if len(self.names) > _MAX_MODELS:
            many = f"{len(self.names)} models and adapters"
            raise UsageError(f"{many} are more than one gateway has room for; split the fleet")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What a request may ask for; its place is its bit in an endpoint's record."""
        return asked_names(self.models, self.adapters)

    @cached_property
    def model_of(self) -> dict[str, str]:
        """The model that answers to each name: an adapter is a little more of one."""
        found = {model: model for model in self.models}
        for model, names in zip(self.served, self.adapters or ((),) * len(self.served), strict=True):
            found.update(dict.fromkeys(names, model))
        return found

    def parameters(self, pickers: int) -> Records:
        """The policy's parameters for this fleet: what its classes are promised, and how many share the endpoints."""
        parameters = default_parameters()
        parameters["pickers"], parameters["shed_fraction"] = pickers, SHED_FRACTION
        for number, item in enumerate(self.classes[:CLASSES]):
            if item.tpot_s is not None:
                parameters["class_tpot_s"][0, number] = item.tpot_s
            if item.e2e_s is not None:
                parameters["class_e2e_s"][0, number] = item.e2e_s
        return parameters

    def having(self, name: str) -> tuple[int, ...]:
        """The endpoints that have a model or an adapter."""
        adapters = self.adapters or ((),) * len(self.served)
        both = enumerate(zip(self.served, adapters, strict=True))
        return tuple(index for index, (model, names) in both if name == model or name in names)

    def weights(self) -> tuple[int, ...]:
        """How many requests each endpoint can take beside the others: what Envoy goes by when no picker answers."""
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
        most = max(*rates, 1e-9)
        return tuple(max(1, round(100 * rate / most)) for rate in rates)

    def load_of(self, model: str) -> tuple[LoadKind, ...]:
        """What comes for a model, as its routes say; chat without a promise where nobody says."""
        mine = [item for item in self.classes if item.model == model]
        whole = sum(item.requests_per_s for item in mine)
        return tuple(
            LoadKind(
                share=item.requests_per_s / whole,
                input_tokens=item.input_tokens,
                output_tokens=item.output_tokens,
                ttft_s=item.ttft_s or inf,
                tpot_s=item.tpot_s or inf,
                e2e_s=item.e2e_s or inf,
            )
            for item in mine
        ) or (_CHAT,)

    def write(self, path: Path) -> None:
        """Keep it in a file, for the other processes of the gateway."""
        told = {
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
        }
        records = io.BytesIO()
        np.save(records, self.endpoints, allow_pickle=False)
        np.save(records, self.kind_records, allow_pickle=False)
        partial = path.with_suffix(".partial")
        partial.write_bytes(json.dumps(told).encode() + b"\n" + records.getvalue())
        partial.replace(path)

    @staticmethod
    def read(path: Path) -> "RoutedFleet":
        """Read what `write` wrote."""
        first, _, records = path.read_bytes().partition(b"\n")
        told = json.loads(first)
        names = ("addresses", "pools", "engines", "models", "served", "followed")
        lists = {key: tuple(told[key]) for key in names}
        kept = io.BytesIO(records)
        endpoints, kind_records = np.load(kept, allow_pickle=False), np.load(kept, allow_pickle=False)
        if endpoints.dtype != ENDPOINT:
            raise UsageError(f"{path.name} is of another version; start the gateway again")
        classes = tuple(RoutedClass(**item) for item in told["classes"])
        return RoutedFleet(
            name=told["name"],
            generation=told["generation"],
            classes=classes,
            endpoints=endpoints,
            adapters=tuple(tuple(names) for names in told["adapters"]),
            kinds=tuple(RoutedPool(**item) for item in told["kinds"]),
            kind_records=kind_records,
            **lists,
        )
