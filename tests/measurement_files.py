"""Shipped measurements that predictions are learnt from, in two editions: the rows read first, and the newer ones."""

from importlib.resources import files

from penstock.catalog import load_measurements
from penstock.catalog._measurement_rows import read_rows

_NEWER = ("atom_more.csv", "inferencex_released.csv", "sglang_cookbook.csv", "small_more.csv")
_DATA = files("penstock.catalog") / "data/measurements"

NEWER_ROWS = tuple(row for name in _NEWER for row in read_rows((_DATA / name).read_text(encoding="utf-8"), name))
_IDS = {row.id for row in NEWER_ROWS}
FIRST_ROWS = tuple(row for row in load_measurements() if row.id not in _IDS)
