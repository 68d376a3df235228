"""Every value of a JSON document comes from an attribute that exists.

`at("deployment.accelerator.id")` is text to a type checker. Here each path is followed through the declared types of
the results, so that a renamed field fails before any command runs. Attributes that a function given to `at` reads from
its only argument are followed the same way.
"""

import dis
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from types import FunctionType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, Union, get_args, get_origin

import pytest
from typing_extensions import TypedDict, get_type_hints, is_typeddict

import penstock.api
from penstock.api.answer import ApiAnswer
from penstock.api.catalog import CatalogModelEntry
from penstock.api.document_schemas import DOCUMENTS
from penstock.catalog.measurement import Measurement
from penstock.model import ModelSpec
from penstock.performance.memory.minimum_change import FitReport
from penstock.performance.prediction.predict_deployment import Prediction
from penstock.planning.plan_result import Answer, NoFleet, PlanResult
from penstock.preflight.executed_speed import Speed
from penstock.preflight.preflight_result import Preflight
from penstock.report.audit import AuditSource
from penstock.report.drawing.json_document import FieldSource, at
from penstock.report.fit.document import FitDeployment
from penstock.report.model_heading import ModelDocument
from penstock.report.plan.document import FleetDocument, LoadDocument, NoFleetDocument, PlanDocument
from penstock.report.predict_document import NearDocument, PredictDeployment
from penstock.report.preflight.document import InsteadDocument, PreflightDeployment, SpeedDocument
from penstock.report.receipts import ReceiptLineDocument
from penstock.report.simulate.document import BlockedDeployment, CapacityDocument, SimulatedDeployment, WorkloadDocument
from penstock.report.sweep_document import SweepPoint
from penstock.routing.replay import ReceiptLine
from penstock.simulation.compare_policies import SharedLoad
from penstock.simulation.scenario import Scenario, SimulationQuestion

Kind: TypeAlias = Any
"""A type as it is annotated: a class, a union, a generic alias."""
Step = tuple[type, Kind, frozenset[str]]
"""A document, the type of the result it is built from, and the fields that its builder is given."""

BUILT: Final[tuple[Step, ...]] = (
    (PlanDocument, PlanResult, frozenset()),
    (FleetDocument, Answer, frozenset()),
    (NoFleetDocument, NoFleet, frozenset()),
    (ModelDocument, ModelSpec, frozenset()),
    (PredictDeployment, Prediction, frozenset({"energy", "nearest", "rent", "usd_per_output_mtok"})),
    (SweepPoint, Prediction, frozenset({"prediction"})),
    (FitDeployment, FitReport, frozenset({"rent", "rent_usd_per_kv_gib_month"})),
    (PreflightDeployment, Preflight, frozenset({"speed", "instead"})),
    (SpeedDocument, Speed, frozenset()),
    (InsteadDocument, Preflight, frozenset()),
    (NearDocument, Measurement, frozenset()),
    (ReceiptLineDocument, ReceiptLine, frozenset({"address"})),
    (BlockedDeployment, Scenario, frozenset()),
    (CapacityDocument, Scenario, frozenset()),
    (SimulatedDeployment, Scenario, frozenset()),
    (WorkloadDocument, SimulationQuestion, frozenset({"hours_of_day"})),
    (WorkloadDocument, SharedLoad, frozenset({"hours_of_day"})),
)
"""Documents that a function builds by hand: only its body knows the type of the result."""
WRITTEN: Final = frozenset(
    {AuditSource, LoadDocument, CatalogModelEntry, *(kind for name, kind in DOCUMENTS.items() if ".catalog." in name)}
)
"""Documents written field by field, which mypy checks."""


for _module in pkgutil.iter_modules(penstock.api.__path__):
    importlib.import_module(f"penstock.api.{_module.name}")  # so that the base class knows every answer


def answers(base: type[ApiAnswer] = ApiAnswer) -> Iterator[Step]:
    for answer in base.__subclasses__():
        if (document := answer.__dict__.get("document_type")) is not None:
            yield document, answer, frozenset()
        yield from answers(answer)


def origin_of(kind: Kind) -> Kind:
    return get_origin(kind)


def variants(kind: Kind) -> tuple[Kind, ...]:
    """The types that a value may have, without None."""
    if origin_of(kind) in {Union, UnionType}:
        return tuple(one for part in get_args(kind) for one in variants(part))
    return () if kind is type(None) else (kind,)


def member(owner: Kind, name: str) -> Kind:
    """The type of an attribute. Any if it is a method, or if its owner has no declared types."""
    owner = origin_of(owner) or owner
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, property) and found.fget is not None:
        return get_type_hints(found.fget).get("return", Any)
    if isinstance(found, cached_property):
        return get_type_hints(found.func).get("return", Any)
    hints = get_type_hints(owner) if is_dataclass(owner) or hasattr(owner, "__annotations__") else {}
    if name in hints:
        return hints[name]
    if found is None:
        raise AttributeError(f"{owner.__name__} has no {name}")
    return Any


def follow(owner: Kind, names: Sequence[str]) -> tuple[Kind, ...]:
    """The types at the end of a path of attributes."""
    owners = variants(owner)
    for name in names:
        owners = tuple(one for kind in owners if is_declared(kind) for one in variants(member(kind, name)))
    return owners


def is_declared(kind: Kind) -> bool:
    return kind is not Any and kind is not object


def reads(function: FunctionType) -> Iterator[list[str]]:
    """The chains of attributes that a function reads from its first argument.

    A function that asks for the type of an attribute reads what only that type has; mypy follows it.
    """
    if "isinstance" in function.__code__.co_names:
        return
    first = function.__code__.co_varnames[: function.__code__.co_argcount][:1]
    chain: list[str] | None = None
    for step in dis.get_instructions(function):
        if chain is not None and step.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            chain.append(str(step.argval).removeprefix("NULL|self + "))
            continue
        if chain:
            yield chain
        chain = [] if step.opname.startswith("LOAD_FAST") and (step.argval,) == first else None


def source_of(name: str, annotation: Kind) -> tuple[Kind, FieldSource | None]:
    if origin_of(annotation) is Annotated:
        kind, source = get_args(annotation)
        return kind, source
    if name == "schema" and origin_of(annotation) is Literal:
        return annotation, None
    return annotation, FieldSource(name)


def returned(function: Callable[..., object], owner: Kind) -> tuple[Kind, ...]:
    """The types that a function returns by its annotation; what it is given, if it only passes that on."""
    if isinstance(function, FunctionType) and function.__name__ == "<lambda>":
        return variants(owner) if function.__code__.co_code == (lambda one: one).__code__.co_code else ()
    return variants(get_type_hints(function).get("return", Any))


def documents_in(kind: Kind) -> Iterator[type]:
    if is_typeddict(kind):
        yield kind
    for part in get_args(kind):
        yield from documents_in(part)


def elements(kind: Kind) -> tuple[Kind, ...]:
    """The types of the entries of a container, or the type itself."""
    origin = origin_of(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return variants(get_args(kind)[1])
    if isinstance(origin, type) and issubclass(origin, (Sequence, AbstractSet)):
        return variants(get_args(kind)[0])
    return (kind,)


def read_field(owner: Kind, source: FieldSource) -> tuple[Kind, ...]:
    """Follow one field's source; the types of its value as far as they are declared."""
    if isinstance(source.path, str):
        return follow(owner, source.path.split("."))
    if isinstance(source.path, FunctionType):
        for chain in reads(source.path):
            follow(owner, chain)
    return returned(source.path, owner)


def check(step: Step, seen: set[tuple[type, Kind]]) -> Iterator[str]:
    """Follow every field of a document and of the documents in it; yield a line per path that leads nowhere."""
    document, owner, given = step
    if (document, owner) in seen:
        return
    seen.add((document, owner))
    for name, annotation in get_type_hints(document, include_extras=True).items():
        kind, source = source_of(name, annotation)
        if source is None or name in given:
            continue
        try:
            found = read_field(owner, source)
        except AttributeError as error:
            yield f"{document.__name__}.{name}: {error}"
            continue
        for nested in documents_in(kind):
            for value in (entry for one in found for entry in elements(one)):
                if isinstance(value, type) and not is_typeddict(value) and value is not object:
                    yield from check((nested, value, frozenset()), seen)


STEPS: Final = (*answers(), *BUILT)


@pytest.mark.parametrize("step", STEPS, ids=[f"{document.__name__} of {kind.__name__}" for document, kind, _ in STEPS])
def test_every_path_of_a_document_leads_to_an_attribute(step: Step) -> None:
    assert list(check(step, set())) == []


def test_every_document_is_followed() -> None:
    seen: set[tuple[type, Kind]] = set()
    for step in STEPS:
        list(check(step, seen))
    every: set[type] = set()
    waiting: list[type] = list(DOCUMENTS.values())
    while waiting:
        document = waiting.pop()
        if document not in every:
            every.add(document)
            waiting += [nested for kind in get_type_hints(document).values() for nested in documents_in(kind)]
    followed = {document for document, _ in seen} | WRITTEN
    assert {document.__name__ for document in every - followed} == set()
    assert len(every) > 40


@dataclass(frozen=True)
class Inner:
    value: int

    @property
    def doubled(self) -> int:
        return 2 * self.value


@dataclass(frozen=True)
class Outer:
    kind: ClassVar[str] = "outer"
    inner: Inner | None
    several: tuple[Inner, ...]


class InnerPaths(TypedDict):
    twice: Annotated[int, at("doubled")]
    gone: Annotated[int, at("halved")]


class OuterPaths(TypedDict):
    value: Annotated[int, at("inner.value")]
    renamed: Annotated[int, at("inner.amount")]
    called: Annotated[int, at(lambda outer: outer.inner.number + 1)]
    several: list[InnerPaths]
    missing: int


def test_a_path_that_leads_nowhere_is_named() -> None:
    assert list(check((OuterPaths, Outer, frozenset()), set())) == [
        "OuterPaths.renamed: Inner has no amount",
        "OuterPaths.called: Inner has no number",
        "InnerPaths.gone: Inner has no halved",
        "OuterPaths.missing: Outer has no missing",
    ]
