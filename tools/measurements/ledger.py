"""What was left out, and why? Every row that is read is kept, or entered here under the name of one filter."""

from dataclasses import dataclass, field

from penstock.catalog.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A row that is not shipped."""

    id: str
    source: str
    accelerator: str
    filter: str
    detail: str = ""


@dataclass(kw_only=True)
class Ledger:
    """The rows left out so far."""

    left: list[Left] = field(default_factory=list)

    def enter(self, name: str, row: Measurement, detail: str = "") -> None:
        """Leave out a row that was understood."""
        self.left.append(Left(id=row.id, source=row.source, accelerator=row.accelerator, filter=name, detail=detail))
