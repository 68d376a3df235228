"""What is in amd_more.csv? AMD's nightly runs of ATOM, tables of InferenceX's blog, and figures of pull requests."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from measurements.collected import NOMINAL, base_fields, split_fields
from measurements.filters import PLUGIN, UNCERTAIN, Raw, flags_of, reason_to_leave
from measurements.ledger import Ledger, Left
from measurements.split import Split
from penstock.catalog.measurement import Measurement

_ATOM: Final = "rocm-atom-nightly"
_DRAWN: Final = {"1024", "8192"}
"""Input lengths that ATOM's benchmark draws from 80 to 100% of, as InferenceX does; its others are exact: output rate,
times and load give back 100, 500 and 1,000 answer tokens."""
_REFS: Final = (
    re.compile(r"https://github\.com/ROCm/ATOM/actions/runs/(.+)"),
    re.compile(r"https://github\.com/SemiAnalysisAI/InferenceX-app/blob/master/packages/app/content/blog/(.+)"),
    re.compile(r"https://github\.com/(.+/pull/\d+)"),
)


def read_amd(rows: Iterable[Raw], ledger: Ledger) -> Iterator[Measurement]:
    """Read every row that no filter drops."""
    for raw in rows:
        reason = reason_to_leave(raw)
        if reason:
            entry = Left(id=raw["row_id"], source=raw["source_id"], accelerator=raw["accelerator"], filter=reason)
            ledger.left.append(entry)
        else:
            yield _read(raw)


def _read(raw: Raw) -> Measurement:
    atom, flags = raw["source_id"] == _ATOM, flags_of(raw)
    values = base_fields(raw, inferencex=False)
    if raw["input_tokens"] in _DRAWN if atom else "random_range_ratio" in raw["notes"] or "derived" in raw["notes"]:
        values["input_tokens"] *= NOMINAL
        values["output_tokens"] *= NOMINAL
    ranks, spread = int(raw["tp"]), re.match(r"EP(\d+)", raw["notes"])
    values["ref"] = next(found[1] for pattern in _REFS if (found := pattern.fullmatch(raw["source"])))
    values["source"] = "github-pr" if "/pull/" in raw["source"] else raw["source_id"]
    values["version"] = _image(raw["engine_version"])
    # ATOM stores the cache in FP8 unless told otherwise.
    values["kv"] = "fp8" if atom else ""
    values["engine"] += "-atom" if PLUGIN in flags else ""
    values["flag"] = _flag(raw, flags)
    return Measurement(**values | split_fields(Split(ranks=ranks, expert_ranks=int(spread[1]) if spread else 1)))


def _flag(raw: Raw, flags: Iterable[str]) -> str:
    derived = ["split_derived"] if raw["notes"].startswith("TP not printed") else []
    return next(iter([UNCERTAIN[flag] for flag in flags if flag in UNCERTAIN] + derived), "")


def _image(name: str) -> str:
    """Shorten an image to what tells releases apart."""
    return re.sub(r"@sha256:(\w{8})\w*", r"@\1", name.removeprefix("rocm/atom-dev:"))
