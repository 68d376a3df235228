"""Reference data for the checks: catalog, models, prices, measurements and sourced facts, passed in by the caller."""

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
    """A sourced fact that no catalog holds: a release, a name, a published result."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    subject: str
    about: str
    url: str
    title: str
    checked_on: date
    holds: bool | None = None
    text: str | None = None
    """Name or statement. `|` separates alternatives; all words of one must appear."""
    low: float | None = None
    high: float | None = None
    measure: str = "number"
    first: date | None = None
    """The day it happened or began to hold, or the first possible day."""
    last: date | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.holds is None and self.text is None and self.low is None and self.first is None:
            raise ValueError(f"the fact '{self.subject} {self.about}' has no value")

    @property
    def cited(self) -> Cited:
        """The source of the fact."""
        return Cited(title=self.title, url=self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedLimit:
    """A threshold of a rule, in total processing performance: dense TOPS times bits."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    id: str
    says: str
    min_tpp: float
    first: date
    url: str
    title: str
    checked_on: date


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedFigure:
    """Another figure that data sheets print for an accelerator: a vector rate, an earlier version's memory."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    accelerator: str
    quantity: str
    value: float
    """Value in base units: bytes, bytes or operations per second, watts."""
    says: str
    url: str
    title: str
    checked_on: date
    bare: bool = False
    """Whether only the bare name of the generation may mean it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Devices that are sold, and listed in data sheets, as one product."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = STRICT

    accelerator: str
    devices: int
    says: str
    url: str
    title: str
    checked_on: date


@dataclass(frozen=True, kw_only=True, eq=False)
class FactBook:
    """All sourced facts by subject and topic."""

    facts: tuple[SourcedFact, ...]
    limits: tuple[SourcedLimit, ...]
    printed: tuple[PrintedFigure, ...] = ()
    packages: tuple[Package, ...] = ()
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Synonyms of subjects."""

    def find(self, subject: str, about: str) -> SourcedFact | None:
        """Return a fact, or None; names are compared without case."""
        wanted = self.name(subject), about.strip().lower()
        return next((fact for fact in self.facts if (fact.subject, fact.about.lower()) == wanted), None)

    def earliest(self, subject: str) -> SourcedFact | None:
        """Return the earliest dated fact of a subject, or None."""
        dated = [fact for fact in self.facts if fact.subject == self.name(subject) and fact.first is not None]
        return min(dated, key=lambda fact: fact.first or date.max, default=None)

    def limit(self, ident: str) -> SourcedLimit | None:
        """Return a threshold by its id, or None."""
        return next((limit for limit in self.limits if limit.id == ident), None)

    def package_of(self, accelerator: str) -> Package | None:
        """Return the package in which an accelerator is sold, or None."""
        return next((package for package in self.packages if package.accelerator == accelerator), None)

    def name(self, subject: str) -> str:
        """Return the canonical name of a subject."""
        spelled = " ".join(subject.lower().split())
        return self.subjects.get(spelled, spelled)


@cache
def shipped_facts() -> FactBook:
    """Read the facts shipped with the package."""
    raw = read_toml(files("penstock.audit") / "data" / "facts.toml")
    return FactBook(
        facts=strictly(tuple[SourcedFact, ...], raw.get("fact", []), "facts.toml"),
        limits=strictly(tuple[SourcedLimit, ...], raw.get("limit", []), "facts.toml"),
        printed=strictly(tuple[PrintedFigure, ...], raw.get("printed", []), "facts.toml"),
        packages=strictly(tuple[Package, ...], raw.get("package", []), "facts.toml"),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Library:
    """Reference data for the checks. It is hashed by identity, as a cache key."""

    accelerator_of: Callable[[str], Accelerator]
    model_of: Callable[[str], ModelSpec]
    prices_of: Callable[[str], Sequence[Price]]
    measurements_of: Callable[[str], Sequence[Measurement]]
    """Measurements of one accelerator."""
    sources: Mapping[str, MeasurementSource]
    shape_of: Callable[[str], str]
    """Function that returns the shape of a catalog model; models of equal shape perform alike."""
    efficiencies: Efficiencies | None
    """Measured efficiencies; None judges by physical bounds alone."""
    facts: FactBook
    subject_of: Callable[[str], Subject]
    """Function that returns a model as preflight sees it."""
    knowledge: Callable[[], Knowledge]
    """The preflight rules, loaded on first use."""
    today: date
