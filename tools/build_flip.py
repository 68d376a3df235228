"""Builds docs/flip/index.html: two offers, two prices, and the price at which the answer flips. `make flip`.

The page holds a grid of predictions and public measurements, so that it works from a file, without a server. Curves are
kept in build/flip, so that a build that was stopped goes on; another version of the sources starts again.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import penstock
from penstock.catalog import load_measurements, measurement_sources
from penstock.catalog.device_prices import hourly_rent
from penstock.errors import PenstockError
from penstock.performance.shipped.shipped_runs import shape_of_name

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PAGE: Final = REPOSITORY / "docs" / "flip" / "index.html"
TEMPLATE: Final = REPOSITORY / "tools" / "flip.html"
KEPT: Final = REPOSITORY / "build" / "flip"
SOURCES: Final = tuple(REPOSITORY / "src" / "penstock" / name for name in ("performance", "catalog", "fleet", "model"))
MODELS: Final = (
    ("llama-3.3-70b", "fp8"),
    ("deepseek-r1", None),
    ("llama-3.1-8b", "bf16"),
    ("gpt-oss-120b", None),
    ("qwen3-32b", "fp8"),
    ("qwen3-235b-a22b", "fp8"),
    ("minimax-m2.5", None),
    ("qwen3.5-397b-a17b", "fp8"),
    ("llama-3.1-405b", "fp8"),
    ("glm-5", "fp8"),
    ("kimi-k2.5", None),
    ("gpt-oss-20b", None),
    ("minimax-m3", "fp8"),
    ("qwen3-30b-a3b", "fp8"),
    ("mixtral-8x7b", "bf16"),
    ("qwen3-next-80b", "fp8"),
)
ACCELERATORS: Final = ("h100_sxm", "h200_sxm", "b200_sxm", "mi300x", "mi325x", "mi355x")
LENGTHS: Final = ((1024, 1024), (8192, 1024), (2048, 400), (16384, 1024))
LOADS: Final = (1, 4, 16, 64, 256)
DEVICES: Final = (1, 2, 4, 8)
MAX_SPLITS: Final = 3
"""Maximum number of replica sizes per curve: the smallest that fits, its double and its fourfold."""
MAX_RISE: Final = 1.1
"""Largest ratio of the speed per user to that at the next smaller load. A curve that rises more is left out: its loads
are predicted from engines that do not agree."""
MAX_DOTS: Final = 40
"""Maximum number of public measurements per curve."""
_LENGTH_RANGE: Final = 0.25


def curves(model: str, precision: str | None, accelerator: str, lengths: tuple[int, int]) -> list[dict[str, Any]]:
    """Return a curve for each size of replica that fits at every load."""
    found: list[dict[str, Any]] = []
    for devices in DEVICES:
        try:
            answer = penstock.sweep(
                model,
                (accelerator, devices),
                precision=precision,
                input_tokens=lengths[0],
                output_tokens=lengths[1],
                concurrency=LOADS,
            )
        except PenstockError:
            continue
        if answer.good:
            rows = answer.rows()
            found.append(
                {
                    "devices": devices,
                    "engine": sorted({str(row["engine"]) for row in rows}),
                    "tier": sorted({str(row["tier"]) for row in rows}),
                    "weights": rows[0]["weights"],
                    "points": [_point(row) for row in rows],
                    "dots": dots(model, accelerator, lengths, devices),
                }
            )
        if len(found) == MAX_SPLITS:
            break
    return [each for each in found if falls(each)]


def falls(curve: dict[str, Any]) -> bool:
    """Return whether more load never makes a user faster, within the tolerance."""
    speeds = [point[1] for point in curve["points"]]
    return all(after <= before * MAX_RISE for before, after in pairwise(speeds))


def _point(row: Any) -> list[float]:  # noqa: ANN401 - a row of the API
    """Return load, tokens per second and user, tokens per second and device with P10 and P90."""
    devices = row["devices"]
    figures = [row[f"output_tokens_per_s{end}"] / devices for end in ("", "_p10", "_p90")]
    return [row["concurrency"], round(row["tokens_per_s_per_user"], 2), *(round(figure, 1) for figure in figures)]


def dots(model: str, accelerator: str, lengths: tuple[int, int], devices: int) -> list[list[Any]]:
    """Return public measurements of the model family on this replica, near these lengths."""
    found = []
    family = shape_of_name(model)
    for row in load_measurements(accelerator):
        near = all(
            abs(measured / asked - 1) <= _LENGTH_RANGE
            for measured, asked in zip((row.input_tokens, row.output_tokens), lengths, strict=True)
        )
        told = row.tpot_s is not None and row.output_tokens_per_s is not None and row.prefill is None
        if near and told and row.devices == devices and shape_of_name(row.model) == family and not row.drafted:
            source = measurement_sources()[row.source]
            url = source.row_url.format(ref=row.ref) if source.row_url and row.ref else source.url
            speed, rate = 1 / (row.tpot_s or 1), (row.output_tokens_per_s or 0) / devices
            label = f"{row.date} {row.engine} {row.weights}, {row.concurrency:g} users"
            found.append([round(speed, 1), round(rate, 1), label, url])
    return sorted(found, key=lambda dot: str(dot[2]), reverse=True)[:MAX_DOTS]


def version_of_sources() -> str:
    """Return a digest of what the curves follow from."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(path for folder in SOURCES for path in folder.rglob("*") if path.is_file()):
        if path.suffix != ".pyc":
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def grid() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield every curve by its key. Models come in the order of the page, whole."""
    folder = KEPT / version_of_sources()
    folder.mkdir(parents=True, exist_ok=True)
    for model, precision in MODELS:
        for lengths in LENGTHS:
            for accelerator in ACCELERATORS:
                key = f"{model}|{lengths[0]}|{lengths[1]}|{accelerator}"
                kept = folder / f"{key.replace('|', '-')}.json"
                if not kept.is_file():
                    kept.write_text(json.dumps(curves(model, precision, accelerator, lengths)), encoding="utf-8")
                yield key, json.loads(kept.read_text(encoding="utf-8"))
            print(model, lengths, file=sys.stderr, flush=True)


def contents() -> dict[str, Any]:
    """Return what the page knows."""
    rents = {name: hourly_rent(name) for name in ACCELERATORS}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": penstock.__version__,
        "models": dict(MODELS),
        "lengths": LENGTHS,
        "accelerators": ACCELERATORS,
        "rents": {name: None if rent is None else round(rent.usd_per_device, 2) for name, rent in rents.items()},
        "curves": {key: found for key, found in grid() if found},
    }


def main() -> int:
    """Write the page."""
    data = json.dumps(contents(), separators=(",", ":")).replace("</", "<\\/")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", data), encoding="utf-8")
    print(f"{PAGE.relative_to(REPOSITORY)}: {PAGE.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
