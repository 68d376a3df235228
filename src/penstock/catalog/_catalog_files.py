"""Reads the catalog. Each entry is one TOML file. A file is parsed strictly, and only when its entry is requested."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from penstock.catalog._csv_columns import Shape, read_table
from penstock.catalog.accelerator import Accelerator
from penstock.catalog.catalog_model import CatalogModel, UnreadCatalogModel
from penstock.errors import CatalogError, UnknownName
from penstock.reading.toml import read_toml, strictly

if TYPE_CHECKING:
    import numpy as np

    from penstock.catalog.measurement import Measurement, MeasurementSource, Use
    from penstock.catalog.price import Price
    from penstock.catalog.published_tables import AcceptanceLength, ApiListPrice, FleetPoint, MlperfResult
    from penstock.catalog.seller import SellerLevels

_DATA = files("penstock.catalog") / "data"
_ALIASES = "aliases.toml"
_FORMATS: Final = re.compile(r"-(quark-)?(bf16|fp8|mxfp4|nvfp4)(-.*)?$")
"""End of the name of a checkpoint that differs from another only in the format of its weights."""
USES: "Final[Mapping[str, Use]]" = {
    "queued.csv": "queued",
    "long_prompts.csv": "held_out",
    "prefill.csv": "held_out",
    "unmerged.csv": "held_out",
}
"""Maps the name of a measurement file that predictions must not be learnt from to its use. Predictions are learnt from
all files that are not listed."""


def accelerator_ids() -> tuple[str, ...]:
    """List the ids of the accelerators in the catalog without reading their files."""
    return _ids("accelerators")


def model_ids() -> tuple[str, ...]:
    """List the ids of the models in the catalog without reading their files."""
    return _ids("models")


def priced_ids() -> tuple[str, ...]:
    """List the ids of the accelerators that have at least one price."""
    return _ids("prices")


@cache
def load_accelerator(name: str) -> Accelerator:
    """Read one accelerator by id or short name (`h100` is the SXM version)."""
    ident = _resolve(name, "accelerators", "penstock catalog list")
    return parse_accelerator(read_toml(_DATA / "accelerators" / f"{ident}.toml"), f"{ident}.toml")


def load_accelerators() -> tuple[Accelerator, ...]:
    """Read every accelerator."""
    return tuple(load_accelerator(ident) for ident in accelerator_ids())


@cache
def load_prices(name: str) -> "tuple[Price, ...]":
    """Read every price recorded for one accelerator, oldest first. The result is empty if no price is recorded."""
    from penstock.catalog.price import Price  # noqa: PLC0415 - `fit` needs no prices

    ident = _resolve(name, "accelerators", "penstock catalog list")
    path = _DATA / "prices" / f"{ident}.toml"
    if not path.is_file():
        return ()
    entries = read_toml(path).get("price", [])
    prices = strictly(tuple[Price, ...], entries, f"prices/{ident}.toml")
    return tuple(sorted(prices, key=lambda price: (price.effective_from, price.id)))


@cache
def load_seller_levels() -> "SellerLevels":
    """Estimate how dear each cloud is, from the hourly rents of all accelerators."""
    from penstock.catalog.price import newest_offers  # noqa: PLC0415 - `fit` needs no prices
    from penstock.catalog.seller import seller_levels  # noqa: PLC0415

    return seller_levels(newest_offers(load_prices(ident), "rent_on_demand") for ident in priced_ids())


@cache
def find_model(name: str) -> CatalogModel:
    """Read one model by its id, short name or hub name.

    A model that is found by the name of a hub repository keeps the name of that repository.
    """
    ident = _resolve(name, "models", "penstock catalog models")
    known = _load_model(ident)
    written = _hub_names().get(name.strip().lower(), known.repo)
    return known if written == known.repo else replace(known, repo=written)


def load_models() -> tuple[CatalogModel, ...]:
    """Read every model in the catalog."""
    return tuple(_load_model(ident) for ident in model_ids())


@cache
def unread_models() -> tuple[UnreadCatalogModel, ...]:
    """Read the models that are known by name and whose shape no reader knows."""
    entries = read_toml(_DATA / "unread_models.toml")["model"]
    return strictly(tuple[UnreadCatalogModel, ...], entries, "unread_models.toml")


def find_unread_model(name: str) -> UnreadCatalogModel | None:
    """Return the model without a known shape that has an id, a repository or the last part of one. None: no such."""
    wanted = name.strip().lower()
    named = (
        (model, {model.id, model.repo.lower(), model.repo.rpartition("/")[2].lower()}) for model in unread_models()
    )
    return next((model for model, names in named if wanted in names), None)


@cache
def load_measurements(accelerator: str | None = None, *, use: "Use" = "evidence") -> "tuple[Measurement, ...]":
    """Read the public measurements that ship with the package for one use, in the order of the file names.

    If an accelerator is given, only its measurements are read.
    """
    from penstock.catalog._measurement_rows import read_rows  # noqa: PLC0415 - `fit` needs no measurements

    folder = (entry for entry in (_DATA / "measurements").iterdir() if entry.name.endswith(".csv"))
    files = sorted((entry for entry in folder if USES.get(entry.name, "evidence") == use), key=lambda entry: entry.name)
    return tuple(
        row
        for file in files
        for row in read_rows(_only(file.read_text(encoding="utf-8"), accelerator), f"measurements/{file.name}")
    )


@cache
def load_acceptance_lengths() -> "tuple[AcceptanceLength, ...]":
    """Read the published acceptance lengths by model, draft method, drafted tokens and workload."""
    from penstock.catalog.published_tables import AcceptanceLength  # noqa: PLC0415 - `fit` needs no such table

    return _table(AcceptanceLength, "acceptance_lengths.csv")


@cache
def load_mlperf_results() -> "tuple[MlperfResult, ...]":
    """Read the results of MLPerf Inference v6.1 for language models on accelerators of the catalog."""
    from penstock.catalog.published_tables import MlperfResult  # noqa: PLC0415 - `fit` needs no such table

    return _table(MlperfResult, "mlperf_v61.csv")


@cache
def load_fleet_points() -> "tuple[FleetPoint, ...]":
    """Read the published points of fleets of several vendors behind one router."""
    from penstock.catalog.published_tables import FleetPoint  # noqa: PLC0415 - `fit` needs no such table

    return _table(FleetPoint, "fleet_points.csv")


@cache
def load_api_prices() -> "tuple[ApiListPrice, ...]":
    """Read the list prices of models on APIs, in the order in which they were recorded."""
    from penstock.catalog.published_tables import ApiListPrice  # noqa: PLC0415 - `fit` needs no prices

    return _table(ApiListPrice, "api_prices.csv")


def api_price_of(model: str) -> "ApiListPrice | None":
    """Return the newest API price of a model, given by id or repository, in any weight format. None: none recorded.

    A model that only has the shape of another, such as a distilled one, does not have its price.
    """
    wanted = _FORMATS.sub("", model.strip().rpartition("/")[2].lower())
    known = [price for price in load_api_prices() if wanted in _sold_names(price.model)]
    return max(known, key=lambda price: price.checked_on, default=None)


def _sold_names(model: str) -> set[str]:
    """Return the id of a sold model and the last part of its repository."""
    repo = _load_model(model).repo if model in model_ids() else model
    return {model, repo.rpartition("/")[2].lower()}


def _table(shape: type[Shape], name: str) -> tuple[Shape, ...]:
    return read_table(shape, (_DATA / name).read_text(encoding="utf-8"), name)


def _only(text: str, accelerator: str | None) -> str:
    """Return the header line and the lines that name one accelerator. Parsing all lines would take much longer."""
    if accelerator is None:
        return text
    header, *lines = text.splitlines(keepends=True)
    return "".join([header, *(line for line in lines if f",{accelerator}," in line)])


@cache
def load_efficiencies() -> Mapping[str, Any]:
    """Read the calibration that ships with the package.

    The module `penstock.performance.calibration.efficiencies` writes the calibration.
    """
    return _document("efficiencies.json")


@cache
def load_disaggregation() -> Mapping[str, Any]:
    """Read the factors by which engine steps are slower in disaggregated deployments.

    The module `penstock.performance.disaggregated.phase_factors` writes these factors.
    """
    return _document("disaggregation.json")


@cache
def load_power() -> Mapping[str, Any]:
    """Read the power model that ships with the package.

    The module `penstock.performance.power.power_document` writes the power model.
    """
    return _document("power.json")


@cache
def load_drafts() -> Mapping[str, Any]:
    """Read the acceptance rates of drafted tokens that ship with the package.

    The module `penstock.performance.calibration.draft_acceptance` writes the acceptance rates.
    """
    return _document("drafts.json")


def _document(name: str) -> Mapping[str, Any]:
    try:
        document = json.loads((_DATA / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{name}: {error}") from error
    return document if isinstance(document, dict) else {}


def load_evidence() -> "Mapping[str, np.ndarray[Any, Any]]":
    """Read the measurements as one array per column.

    The module `penstock.performance.calibration.efficiencies` writes these arrays.
    """
    return _arrays("evidence.npz")


def load_drafted_evidence() -> "Mapping[str, np.ndarray[Any, Any]]":
    """Read the measurements with drafts as one array per column, which `make drafts` writes."""
    return _arrays("drafted_evidence.npz")


def load_held_out() -> "Mapping[str, np.ndarray[Any, Any]]":
    """Read the held-out prediction of each measurement, which `make calibration` writes.

    A held-out prediction uses no measurement of the same month, setup, model or accelerator.
    """
    return _arrays("held_out.npz")


@cache
def _arrays(name: str) -> "Mapping[str, np.ndarray[Any, Any]]":
    import numpy as np  # noqa: PLC0415 - a catalog without evidence needs no numpy

    try:
        with (_DATA / name).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, ValueError) as error:
        raise CatalogError(f"{name}: {error}") from error


@cache
def measurement_sources() -> "Mapping[str, MeasurementSource]":
    """Read the publishers of the measurements, keyed by publisher id."""
    from penstock.catalog.measurement import MeasurementSource  # noqa: PLC0415 - `fit` needs no measurements

    raw = read_toml(_DATA / "measurements" / "sources.toml").get("source", [])
    sources = strictly(tuple[MeasurementSource, ...], raw, "sources.toml")
    return {source.id: source for source in sources}


def parse_accelerator(raw: dict[str, Any], where: str) -> Accelerator:
    """Parse the TOML table of one accelerator strictly.

    An unknown key, a number in quotes or a missing source is an error.
    """
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
    """Map short names to ids. All short names are in one file, so that a lookup does not read the whole catalog."""
    written = read_toml(_DATA / folder / _ALIASES)
    return {str(alias).lower(): str(ident) for alias, ident in written.items() if isinstance(ident, str)}


@cache
def _hub_names() -> dict[str, str]:
    """Map the lower-case name of each hub repository to the name as written.

    The lower-case part after the slash is also a key, unless it equals a catalog id.
    """
    written = [str(alias) for alias in read_toml(_DATA / "models" / _ALIASES) if "/" in str(alias)]
    tails = {name.rpartition("/")[2].lower(): name for name in reversed(written)}
    for ident in _ids("models"):
        tails.pop(ident, None)
    return tails | {name.lower(): name for name in written}


def _resolve(name: str, folder: str, listing: str) -> str:
    wanted = name.strip().lower()
    aliases = _aliases(folder)
    ident = aliases.get(wanted, wanted)
    if ident not in _ids(folder) and folder == "models":
        ident = aliases.get(_hub_names().get(wanted, "").lower(), wanted)
    if folder == "accelerators" and ident not in _ids(folder):
        ident = _ids_by_letters(folder).get(_letters(wanted), wanted)
    if ident in _ids(folder):
        return ident
    if folder == "accelerators" and (reason := _not_covered(wanted)) is not None:
        raise UnknownName(f"'{name}' is not covered: {reason}; `{listing}` lists all accelerators that are covered")
    if folder == "accelerators" and (similar := _similar_accelerator(wanted)) is not None:
        raise UnknownName(f"'{name}' is not in the catalog; {similar}; `{listing}` lists all accelerators")
    near = _nearest(wanted, (*_ids(folder), *aliases))
    hint = f"did you mean {near}? " if near else ""
    raise UnknownName(f"no {folder.removesuffix('s')} named '{name}'; {hint}`{listing}` shows all")


def _letters(name: str) -> str:
    return "".join(letter for letter in name if letter.isalnum())


@cache
def _ids_by_letters(folder: str) -> dict[str, str]:
    """Map names without punctuation to ids, so that spellings such as `h100-nvl` and `rtx pro 6000` are found."""
    names = {ident: ident for ident in _ids(folder)} | _aliases(folder)
    return {_letters(name): ident for name, ident in names.items()}


def _similar_accelerator(wanted: str) -> str | None:
    """Return a sentence that names a similar accelerator in the catalog.

    The catalog has such a sentence for some known accelerators that it does not cover. For all other names the result
    is None.
    """
    similar = read_toml(_DATA / "accelerators" / _ALIASES).get("kin", {}).get(_letters(wanted))
    return None if similar is None else str(similar)


def _not_covered(wanted: str) -> str | None:
    """Return the reason why the catalog does not cover a known accelerator, or None if no reason is recorded."""
    spelled = _letters(wanted)
    for start, reason in read_toml(_DATA / "accelerators" / _ALIASES).get("not_covered", {}).items():
        if spelled.startswith(str(start)):
            return str(reason)
    return None


def _nearest(wanted: str, known: Iterable[str]) -> str:
    return " or ".join(difflib.get_close_matches(wanted[:64], list(known), n=2, cutoff=0.6))
