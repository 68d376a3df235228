"""How is the catalog read? One TOML file per thing, parsed strictly, only when asked for."""

import csv
import difflib
import io
import json
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.catalog.accelerator import Accelerator
from penstock.catalog.measurement import Measurement, MeasurementSource
from penstock.catalog.model import CatalogModel
from penstock.catalog.price import Price
from penstock.errors import CatalogError, UnknownName
from penstock.reading.toml import read_toml, strictly

_DATA = files("penstock.catalog") / "data"
_ALIASES = "aliases.toml"


def accelerator_ids() -> tuple[str, ...]:
    """List the accelerators the catalog holds, without reading them."""
    return _ids("accelerators")


def model_ids() -> tuple[str, ...]:
    """List the models known by name, without reading them."""
    return _ids("models")


def priced_ids() -> tuple[str, ...]:
    """List the accelerators that have at least one price."""
    return _ids("prices")


@cache
def load_accelerator(name: str) -> Accelerator:
    """Read one accelerator by id or short name (`h100` is the SXM part)."""
    ident = _resolve(name, "accelerators", "penstock catalog list")
    return parse_accelerator(read_toml(_DATA / "accelerators" / f"{ident}.toml"), f"{ident}.toml")


def load_accelerators() -> tuple[Accelerator, ...]:
    """Read every accelerator."""
    return tuple(load_accelerator(ident) for ident in accelerator_ids())


@cache
def load_prices(name: str) -> tuple[Price, ...]:
    """Read every price recorded for one accelerator, oldest first; empty when there is none."""
    ident = _resolve(name, "accelerators", "penstock catalog list")
    path = _DATA / "prices" / f"{ident}.toml"
    if not path.is_file():
        return ()
    entries = read_toml(path).get("price", [])
    prices = strictly(tuple[Price, ...], entries, f"prices/{ident}.toml")
    return tuple(sorted(prices, key=lambda price: (price.effective_from, price.id)))


@cache
def find_model(name: str) -> CatalogModel:
    """Read one model by id, short name or hub repository name."""
    ident = _resolve(name, "models", "penstock catalog models")
    return _load_model(ident)


def load_models() -> tuple[CatalogModel, ...]:
    """Read every model known by name."""
    return tuple(_load_model(ident) for ident in model_ids())


@cache
def load_measurements() -> tuple[Measurement, ...]:
    """Read every public measurement the package ships."""
    text = (_DATA / "measurements" / "rows.csv").read_text(encoding="utf-8")
    return tuple(_measurement(row) for row in csv.DictReader(io.StringIO(text)))


@cache
def load_efficiencies() -> Mapping[str, Any]:
    """Read the shipped calibration, as `penstock.performance.evidence.efficiencies` writes it."""
    try:
        document = json.loads((_DATA / "efficiencies.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"efficiencies.json: {error}") from error
    return document if isinstance(document, dict) else {}


@cache
def measurement_sources() -> Mapping[str, MeasurementSource]:
    """Read who published the measurements."""
    raw = read_toml(_DATA / "measurements" / "sources.toml").get("source", [])
    sources = strictly(tuple[MeasurementSource, ...], raw, "sources.toml")
    return {source.id: source for source in sources}


def _measurement(row: dict[str, str]) -> Measurement:
    def number(key: str) -> float | None:
        return float(row[key]) if row[key] else None

    try:
        return Measurement(
            id=row["id"],
            source=row["source"],
            ref=row["ref"],
            scenario=row["scenario"],  # type: ignore[arg-type]  # a test holds every row to the three known ones
            model=row["model"],
            weights=row["weights"],
            kv=row["kv"],
            accelerator=row["accelerator"],
            engine=row["engine"],
            version=row["version"],
            date=date.fromisoformat(row["date"]),
            tp=int(row["tp"]),
            dp=int(row["dp"]),
            ep=row["ep"] == "1",
            concurrency=number("concurrency"),
            input_tokens=float(row["input_tokens"]),
            output_tokens=float(row["output_tokens"]),
            tpot_s=number("tpot_s"),
            ttft_s=number("ttft_s"),
            output_tokens_per_s=number("output_tokens_per_s"),
        )
    except (KeyError, ValueError) as error:
        raise CatalogError(f"measurements/rows.csv: row {row.get('id', '?')}: {error}") from error


def parse_accelerator(raw: dict[str, Any], where: str) -> Accelerator:
    """Check one accelerator's table strictly: an unknown key, a number in quotes or a missing source is an error."""
    return strictly(Accelerator, raw, where)


@cache
def _load_model(ident: str) -> CatalogModel:
    return strictly(CatalogModel, read_toml(_DATA / "models" / f"{ident}.toml"), f"{ident}.toml")


@cache
def _ids(folder: str) -> tuple[str, ...]:
    names = (entry.name for entry in (_DATA / folder).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml") and name != _ALIASES))


@cache
def _aliases(folder: str) -> dict[str, str]:
    """Short names live in one file, so that resolving one does not read the whole catalog."""
    return {str(alias).lower(): str(ident) for alias, ident in read_toml(_DATA / folder / _ALIASES).items()}


def _resolve(name: str, folder: str, listing: str) -> str:
    wanted = name.strip().lower()
    aliases = _aliases(folder)
    ident = aliases.get(wanted, wanted)
    if ident in _ids(folder):
        return ident
    near = _nearest(wanted, (*_ids(folder), *aliases))
    hint = f"did you mean {near}? " if near else ""
    raise UnknownName(f"no {folder.removesuffix('s')} named '{name}'; {hint}`{listing}` shows all")


def _nearest(wanted: str, known: Iterable[str]) -> str:
    return " or ".join(difflib.get_close_matches(wanted[:64], list(known), n=2, cutoff=0.6))
