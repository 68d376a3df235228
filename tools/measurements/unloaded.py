"""What is in long_prompts.csv and prefill_llmd.csv? Rows that predictions are tested on: prompts that wait, or not."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from measurements.filters import Raw
from measurements.labelled import KNOWN, Filters, flagged, labelled_fields, read_labelled
from measurements.ledger import Ledger
from penstock.catalog.measurement import Measurement

_FIRST_TOKEN: Final = 1.0
"""Output tokens of a row that measures only the first one."""
_PREFILL_FILTERS: Final[Filters] = (
    *KNOWN,
    ("two_values_published", flagged("two_values_published")),
    ("gateway", flagged("through_gateway")),
)


def read_long_prompts(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    return read_labelled(rows, KNOWN, lambda raw: labelled_fields(raw, ["release_week_software"]), ledger)


def read_prefill(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    return read_labelled(rows, _PREFILL_FILTERS, _prefill_fields, ledger)


def _prefill_fields(raw: Raw) -> dict[str, Any]:
    values = labelled_fields(raw, ["beyond_native_context"])
    return values | {"output_tokens": _FIRST_TOKEN}
