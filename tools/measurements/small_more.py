"""What is in small_more.csv? Dense models on MI300X from vLLM's recipes, and DeepSeek-R1 disaggregated from AMD."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from measurements.filters import Raw
from measurements.labelled import KNOWN, Filters, labelled_fields, read_labelled
from measurements.ledger import Ledger
from penstock.catalog.measurement import Measurement

_STACKS: Final = {"amd-infera": "mori-sglang"}
_FILTERS: Final[Filters] = KNOWN


def read_small_more(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    return read_labelled(rows, _FILTERS, _fields, ledger)


def _fields(raw: Raw) -> dict[str, Any]:
    return labelled_fields(raw, ["weights_inferred"]) | {"stack": _STACKS.get(raw["source"], "")}
