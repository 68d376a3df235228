"""Reference data for the checks: catalog, models, prices, measurements and sourced facts. The caller provides it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files

from penstock.audit.judgement import Cited
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.measurement import Measurement, MeasurementSource
from penstock.catalog.price import Price
from penstock.model import ModelSpec
from penstock.performance.calibration.efficiencies import Efficiencies
from penstock.preflight import Subject
from penstock.preflight.rules.knowledge import Knowledge
from penstock.reading.toml import read_toml, strictly


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedFact:
    """A sourced fact that is in no catalog, such as a release, a name or a published result."""

    subject: str
    about: str
    url: str
    title: str
    checked_on: date
    holds: bool | None = None
    text: str | None = None
    """Name or statement.

    `|` separates alternatives. A claim is confirmed if it contains all words of one alternative.
    """
    low: float | None = None
    high: float | None = None
    measure: str = "number"
    first: date | None = None
    """The day on which the event happened or the fact began to hold.

    If the day is uncertain, this is the first possible day.
    """
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
    """The threshold of a rule, in total processing performance, which is dense TOPS times bits."""

    id: str
    says: str
    min_tpp: float
    first: date
    url: str
    title: str
    checked_on: date


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedFigure:
    """A figure that data sheets print for an accelerator and that is not in the catalog.

    Examples are a vector rate, and the memory of an earlier version.
    """

    accelerator: str
    quantity: str
    value: float
    """Value in the base unit of the quantity: bytes, bytes per second, operations per second or watts."""
    says: str
    url: str
    title: str
    checked_on: date
    bare: bool = False
    """Whether the figure applies only to claims that name the bare generation, such as `h100`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Several devices that are sold, and listed in data sheets, as one product."""

    accelerator: str
    devices: int
    says: str
    url: str
    title: str
    checked_on: date


@dataclass(frozen=True, kw_only=True, eq=False)
class FactBook:
    """All sourced facts and thresholds, printed figures and packages."""

    facts: tuple[SourcedFact, ...]
    limits: tuple[SourcedLimit, ...]
    printed: tuple[PrintedFigure, ...] = ()
    packages: tuple[Package, ...] = ()
    subjects: Mapping[str, str] = field(default_factory=dict)
    """Canonical names of subjects, by synonym."""

    def find(self, subject: str, about: str) -> SourcedFact | None:
        """Return the fact about a topic of a subject, or None. Upper and lower case are treated as equal."""
        wanted = self.name(subject), about.strip().lower()
        return next((fact for fact in self.facts if (fact.subject, fact.about.lower()) == wanted), None)

    def earliest(self, subject: str) -> SourcedFact | None:
        """Return the fact of a subject with the earliest date, or None if no fact has a date."""
        dated = [fact for fact in self.facts if fact.subject == self.name(subject) and fact.first is not None]
        return min(dated, key=lambda fact: fact.first or date.max, default=None)

    def limit(self, ident: str) -> SourcedLimit | None:
        """Return the threshold with the given id, or None if there is none."""
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
    """Return the facts that are shipped with the package."""
    raw = read_toml(files("penstock.audit") / "data" / "facts.toml")
    return FactBook(
        facts=strictly(tuple[SourcedFact, ...], raw.get("fact", []), "facts.toml"),
        limits=strictly(tuple[SourcedLimit, ...], raw.get("limit", []), "facts.toml"),
        printed=strictly(tuple[PrintedFigure, ...], raw.get("printed", []), "facts.toml"),
        packages=strictly(tuple[Package, ...], raw.get("package", []), "facts.toml"),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Library:
    """Reference data for the checks.

    Libraries can be cache keys, because they are compared by identity and not by content.
    """

    accelerator_of: Callable[[str], Accelerator]
    model_of: Callable[[str], ModelSpec]
    prices_of: Callable[[str], Sequence[Price]]
    measurements_of: Callable[[str], Sequence[Measurement]]
    """Function that maps an accelerator id to the measurements of that accelerator."""
    sources: Mapping[str, MeasurementSource]
    shape_of: Callable[[str], str]
    """Function that maps a catalog model to its shape. Models of equal shape have equal speed."""
    efficiencies: Efficiencies | None
    """Measured efficiencies.

    If efficiencies are None, speeds are judged by physical bounds and published rows alone.
    """
    facts: FactBook
    subject_of: Callable[[str], Subject]
    """Function that maps a model name to the subject of a preflight."""
    knowledge: Callable[[], Knowledge]
    """Function that returns the preflight rules and tables.

    The function loads the rules and tables at its first call.
    """
    today: date
