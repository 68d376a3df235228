"""What may auditors consult? Catalog, models, prices, measurements and sourced facts, handed in by whoever asks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files
from typing import ClassVar

from penstock.audit.judgement import Cited
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.measurement import Measurement, MeasurementSource
from penstock.catalog.price import Price
from penstock.model import ModelSpec
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.preflight import Subject
from penstock.preflight.rules.knowledge import Knowledge
from penstock.reading.toml import STRICT, read_toml, strictly


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedFact:
    """Something on record that no catalog holds: a release, a name, a result somebody published."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    subject: str
    about: str
    url: str
    title: str
    checked_on: date
    holds: bool | None = None
    text: str | None = None
    """What it is called or says; alternatives are parted by bars, each of them words that must all appear."""
    low: float | None = None
    high: float | None = None
    measure: str = "number"
    first: date | None = None
    """The day it happened or began to hold, or the first of the days it may have been."""
    last: date | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.holds is None and self.text is None and self.low is None and self.first is None:
            raise ValueError(f"the fact '{self.subject} {self.about}' says nothing")

    @property
    def cited(self) -> Cited:
        """Where it is written."""
        return Cited(title=self.title, url=self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedLimit:
    """A threshold of a rule: total processing performance is dense tera-operations a second times their bits."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    says: str
    least_tpp: float
    first: date
    url: str
    title: str
    checked_on: date


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedFigure:
    """Another figure that data sheets print for a quantity of a part: a vector rate, an earlier version's memory."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    part: str
    quantity: str
    value: float
    """In plain units: bytes, bytes or operations a second, watts."""
    says: str
    url: str
    title: str
    checked_on: date
    bare: bool = False
    """Whether only the bare name of the generation may mean it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Devices that are sold, and printed in data sheets, as one."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    part: str
    devices: int
    says: str
    url: str
    title: str
    checked_on: date


@dataclass(frozen=True, kw_only=True, eq=False)
class FactBook:
    """All sourced facts, by subject and what they are about."""

    facts: tuple[SourcedFact, ...]
    limits: tuple[SourcedLimit, ...]
    printed: tuple[PrintedFigure, ...] = ()
    packages: tuple[Package, ...] = ()
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Other names of subjects."""

    def find(self, subject: str, about: str) -> SourcedFact | None:
        """Look something up; names are compared without case."""
        wanted = self.name(subject), about.strip().lower()
        return next((fact for fact in self.facts if (fact.subject, fact.about.lower()) == wanted), None)

    def earliest(self, subject: str) -> SourcedFact | None:
        """The first thing on record that happened to a subject."""
        dated = [fact for fact in self.facts if fact.subject == self.name(subject) and fact.first is not None]
        return min(dated, key=lambda fact: fact.first or date.max, default=None)

    def limit(self, ident: str) -> SourcedLimit | None:
        """Look a threshold up."""
        return next((limit for limit in self.limits if limit.id == ident), None)

    def package_of(self, part: str) -> Package | None:
        """Look up what a part is sold in."""
        return next((package for package in self.packages if package.part == part), None)

    def name(self, subject: str) -> str:
        """The name facts have for a subject."""
        spelled = " ".join(subject.lower().split())
        return self.subjects.get(spelled, spelled)


@cache
def shipped_facts() -> FactBook:
    """Read the facts of the package."""
    raw = read_toml(files("penstock.audit") / "data" / "facts.toml")
    return FactBook(
        facts=strictly(tuple[SourcedFact, ...], raw.get("fact", []), "facts.toml"),
        limits=strictly(tuple[SourcedLimit, ...], raw.get("limit", []), "facts.toml"),
        printed=strictly(tuple[PrintedFigure, ...], raw.get("printed", []), "facts.toml"),
        packages=strictly(tuple[Package, ...], raw.get("package", []), "facts.toml"),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Library:
    """What auditors know; one library is one key of what was worked out with it."""

    accelerator_of: Callable[[str], Accelerator]
    model_of: Callable[[str], ModelSpec]
    prices_of: Callable[[str], Sequence[Price]]
    measurements_of: Callable[[str], Sequence[Measurement]]
    """Of one accelerator."""
    sources: Mapping[str, MeasurementSource]
    shape_of: Callable[[str], str]
    """The shape of a catalog model: sizes of the same shape run alike."""
    efficiencies: Efficiencies | None
    """None judges by bounds alone."""
    facts: FactBook
    subject_of: Callable[[str], Subject]
    """A model as preflight sees it."""
    knowledge: Callable[[], Knowledge]
    """The rules of preflight, read when they are first asked for."""
    today: date
