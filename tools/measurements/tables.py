"""What is in the files that are no rows? Acceptance lengths, MLPerf v6.1, ML.ENERGY v3.0 and llm-d's fleets."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

from measurements.filters import Raw
from measurements.labelled import Filters, day_of, flagged, flags
from measurements.ledger import Ledger, Left
from penstock.catalog import accelerator_ids, find_model
from penstock.catalog._csv_columns import parsers_of
from penstock.catalog.published_tables import AcceptanceLength, EnergyRun, FleetPoint, MlperfResult
from penstock.errors import UnknownName

_WORKLOADS: Final = {
    "speed-bench coding": "speed_bench_coding",
    "gsm8k, 3 examples shown": "gsm8k",
    "agentic coding trace": "agentic_trace",
    "agentic trace, 68k-token prompts": "agentic_trace",
    "random tokens": "random_tokens",
    "random tokens behind a chat template": "random_tokens_in_chat_template",
}
_THINKING: Final = {"on": True, "off": False, "": None}
_ALL_WATTS: Final = "watts_all_devices"
_PICKER_BOUND_REQUESTS_PER_S: Final = 25
"""Rate from which the router's processor limits the fleet of all three vendors, as the post says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Shipped table: its raw file, its shape, what drops a raw row and how one is read."""

    raw: str
    shape: type[Any]
    read: Callable[[Raw], Mapping[str, Any]]
    filters: Filters = ()

    def rows(self, raws: Iterable[Raw], ledger: Ledger) -> list[Any]:
        """Read every raw row that no filter drops."""
        found = []
        for raw in raws:
            reason = next((name for name, drops in self.filters if drops(raw)), None)
            if reason is None:
                found.append(self.shape(**self.read(raw)))
            else:
                accelerator = raw.get("accelerator", "")
                ledger.left.append(Left(id=raw["id"], source=raw["source"], accelerator=accelerator, filter=reason))
        return found


def _typed(raw: Raw, shape: type[Any], renamed: Mapping[str, str]) -> dict[str, Any]:
    """Return the stated fields of a shape, each in its type. `renamed` maps fields to other names of their columns."""
    parsers, values = parsers_of(shape), {}
    for name, parse in parsers.items():
        written = raw.get(renamed.get(name, name), "")
        if written:
            values[name] = day_of(written)[0] if name == "date" else parse(written)
    return values


def _acceptance(raw: Raw) -> dict[str, Any]:
    renamed = {
        "accepted_length": "accept_length",
        "min_accepted_length": "accept_length_min",
        "max_accepted_length": "accept_length_max",
        "thinking": "",
        "workload": "",
    }
    said = {"workload": _WORKLOADS[raw["workload"]], "thinking": _THINKING[raw["thinking"]]}
    return _typed(raw, AcceptanceLength, renamed) | said


def _mlperf(raw: Raw) -> dict[str, Any]:
    values = _typed(raw, MlperfResult, {"scenario": ""})
    return values | {"scenario": raw["scenario"].removeprefix("mlperf_")}


def _energy(raw: Raw) -> dict[str, Any]:
    renamed = {"repo": "model_id", "ep_ranks": "ep_as_stated", "max_running": "max_num_seqs", "watts": _ALL_WATTS}
    # The day of the repository, in brackets, is the latest on which a run may have been made.
    latest = raw["date"].removesuffix(")").rpartition(" ")[2]
    values = _typed({**raw, "date": latest}, EnergyRun, renamed)
    return values | {"model": _catalog_model(raw["model_id"])}


def _catalog_model(repo: str) -> str:
    try:
        return find_model(repo).id
    except UnknownName:
        return ""


def _fleet(raw: Raw) -> dict[str, Any]:
    values = _typed(raw, FleetPoint, {"pools": "pool_as_drafted", "ttft_s": "ttft_mean_s"})
    three = values["pools"].count("+") > 1
    bound = three and values["offered_requests_per_s"] >= _PICKER_BOUND_REQUESTS_PER_S
    return values | {"flag": ";".join([*sorted(flags(raw)), *(["picker_bound"] if bound else [])])}


TABLES: Final[Mapping[str, Table]] = {
    "acceptance_lengths.csv": Table(raw="acceptance_lengths.csv", shape=AcceptanceLength, read=_acceptance),
    "fleet_points.csv": Table(raw="fleet_llmd.csv", shape=FleetPoint, read=_fleet),
    "mlenergy.csv": Table(raw="mlenergy.csv", shape=EnergyRun, read=_energy),
    "mlperf_v61.csv": Table(
        raw="mlperf_v61.csv",
        shape=MlperfResult,
        read=_mlperf,
        filters=(
            ("mixed_system", lambda raw: "+" in raw["accelerator"]),
            ("unknown_accelerator", lambda raw: raw["accelerator"] not in accelerator_ids()),
            ("accuracy_low", flagged("accuracy_below_target")),
            ("half_of_others", flagged("half_of_others")),
            ("tokens_unstated", lambda raw: not raw["output_tokens_per_s"]),
        ),
    ),
}
"""Each shipped table by the name of its file."""


def table_text(shape: type[Any], rows: Sequence[Any]) -> str:
    """Return the text of a table, without columns that have their default in every row."""
    names = [
        field.name
        for field in fields(shape)
        if field.default is MISSING or any(getattr(row, field.name) != field.default for row in rows)
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_written(getattr(row, name)) for name in names] for row in rows)
    return out.getvalue()


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.7g}" if isinstance(value, float) else str(value)
