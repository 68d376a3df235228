"""Defines the base class of all answers.

An answer has a short repr, a JSON document, data-frame rows and a notebook view.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from rich.console import Console, RenderableType

from penstock.report.drawing.json_document import build
from penstock.report.drawing.plain_json import plain_fields, to_json

if TYPE_CHECKING:
    from penstock.performance.prediction.predict_deployment import Range

Cell: TypeAlias = str | int | float | bool | None
Row: TypeAlias = dict[str, Cell]

NOTEBOOK_COLUMNS: Final = 110
_REPR_CHARACTERS: Final = 199
EXIT_NEGATIVE: Final = 1
EXIT_NOT_CHECKED: Final = 4
"""Exit code of an answer that is neither yes nor no, because too little was read to judge."""
_PRE: Final = (
    '<pre style="font-family:monospace;line-height:1.3;white-space:pre;overflow-x:auto" role="figure" '
    'aria-label="{label}">{{code}}</pre>'
)


class ApiAnswer(ABC):
    """Answer of an API function.

    The methods of this class stay the same between releases. The fields of subclasses hold objects of the library.
    """

    document_type: ClassVar[type]
    """Type of the answer's document. The JSON schema of this type is published."""

    @property
    @abstractmethod
    def good(self) -> bool:
        """Return whether the verdict is positive.

        The command exits with 0 if and only if the verdict is positive.
        """

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command: 0, 1 for a negative verdict, 4 if too little was read to judge."""
        return 0 if self.good else EXIT_NEGATIVE

    def document(self) -> Mapping[str, object]:
        """Return the document that `--json` prints."""
        return build(self.document_type, self)

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return one flat row per compared item, for a data frame. Values are in SI units and bytes."""

    @abstractmethod
    def render(self, columns: int) -> RenderableType:
        """Return the command's output for a terminal with the given number of columns."""

    @abstractmethod
    def _summary(self) -> tuple[str, Sequence[str]]:
        """Return the name of the model, fleet or other subject, and short phrases with the results."""

    def to_dict(self) -> dict[str, object]:
        """Return the document that `--json` prints as plain values. The key `schema` comes first."""
        return plain_fields(self.document())

    def to_json(self) -> str:
        """Serialise the document as `--json` prints it."""
        return to_json(self.document())

    def __repr__(self) -> str:
        about, pieces = self._summary()
        opening = f"{type(self).__name__}({about}: "
        for shown in range(len(pieces), 0, -1):
            more = "" if shown == len(pieces) else f"; {len(pieces) - shown} more"
            text = f"{opening}{'; '.join(pieces[:shown])}{more})"
            if len(text) <= _REPR_CHARACTERS:
                return text
        return f"{opening[:120]}{len(pieces)} rows)"

    def _repr_html_(self) -> str:
        console = Console(
            file=StringIO(), width=NOTEBOOK_COLUMNS, record=True, force_jupyter=False, color_system="truecolor"
        )
        console.print(self.render(NOTEBOOK_COLUMNS))
        label = f"{type(self).__name__} as text; .rows() has the figures"
        return console.export_html(inline_styles=True, code_format=_PRE.format(label=label))


def device_label(name: str, devices: int) -> str:
    """Return an accelerator's name with its number of devices, such as `h100 x2`."""
    return name + (f" x{devices}" if devices > 1 else "")


def spread_over(name: str, value: "Range | None") -> Row:
    """Return three columns of a row: a value, its P10 and its P90."""
    low, high = (None, None) if value is None else (value.low, value.high)
    return {name: None if value is None else value.value, f"{name}_p10": low, f"{name}_p90": high}
