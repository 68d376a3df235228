"""Writes reference pages from declarations: keys of files, metrics of the gateway, environment variables."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from key_meanings import KEY_MEANINGS

import penstock
from penstock.fleet.fleet_file import FLEET_FILE
from penstock.gateway.state.request_outcome import RequestOutcome, outcome_rows
from penstock.gateway.state.routed_fleet import RoutedClass, RoutedFleet, RoutedPool
from penstock.gateway.state.shared_tables import COUNTS, PICKER_STATE, REPORT
from penstock.gateway.telemetry.autoscaling import DesiredReplicas
from penstock.gateway.telemetry.cost_metrics import SETTLE_EVERY_S
from penstock.gateway.telemetry.gateway_metrics import lost_lines, metrics_page
from penstock.gateway.telemetry.scraper import ENVOY_COUNTERS
from penstock.gateway.telemetry.usage_metrics import UsageMetrics
from penstock.planning.spec.plan_file import PLAN_FILE
from penstock.reading.file_shape import FileShape
from penstock.routing.records import new_endpoints

SOURCES: Final = Path(penstock.__file__).parent
VARIABLES: Final = {
    "PENSTOCK_ENVOY": "Path of Envoy. Default: the Envoy of the `gateway` extra, then the one on the PATH.",
    "PENSTOCK_PACKS": "Data packs and rules of `preflight`. Default: `penstock/packs` in the data directory.",
    "PENSTOCK_TRIAL_CACHE": "`off`: `plan` and `simulate` neither read nor write stored trials.",
    "SSL_CERT_FILE": "CA bundle by which `route` checks the server of a JWKS. Default: that of the system.",
    "XDG_DATA_HOME": "Data directory. Default: `~/.local/share`.",
    "XDG_CACHE_HOME": "Cache directory, for stored trials and a compiled library. Default: `~/.cache`.",
    "COLUMNS": "Width of printed tables, if the output is not a terminal.",
    "OPENBLAS_NUM_THREADS": "Threads of linear algebra; `OMP_NUM_THREADS` likewise. Default for commands: 1.",
}
"""Environment variables that the package reads. A test compares the names with the sources."""


def plan_keys_page() -> str:
    """Return the page on `plan.yaml`: every key."""
    head = "`penstock plan --init` prints a commented example; `penstock plan --schema` prints the JSON schema."
    return _keys("plan.yaml", head, PLAN_FILE)


def fleet_keys_page() -> str:
    """Return the page on `fleet.yaml`: every key."""
    head = (
        "`penstock plan plan.yaml --fleet fleet.yaml` writes one. "
        "`simulate`, `preflight`, `route`, `emulate` and `export` read it."
    )
    return _keys("fleet.yaml", head, FLEET_FILE)


def _keys(title: str, head: str, shape: FileShape[Any]) -> str:
    schema, said = shape.schema(), _docstrings()
    lines = [f"# {title}", "", f"Generated from the classes that read the file. {head}"]
    whole = shape.of.__name__
    for name, table in _tables(schema, whole):
        lines += ["", f"## {'Top level' if name == whole else name}", "", str(table.get("description", "")), ""]
        required = table.get("required", ())
        for key, value in table["properties"].items():
            default = _written(value.get("default"))
            note = "; required" if key in required else f"; default {default}" if default else ""
            meaning = said.get((name, key)) or KEY_MEANINGS.get((name, key), "")
            lines.append(f"- `{key}` {meaning} *{_type(value)}{note}*")
    return "\n".join(lines) + "\n"


def _tables(schema: Mapping[str, Any], whole: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables of a file by class name, in the order in which keys lead to them."""
    definitions, found, ahead = schema.get("$defs", {}), set[str](), [(whole, schema)]
    while ahead:
        name, table = ahead.pop(0)
        if name in found or "properties" not in table:
            continue
        found.add(name)
        yield name, table
        below = re.findall(r"#/\$defs/(\w+)", str(table["properties"]))
        ahead += [(other, definitions[other]) for other in dict.fromkeys(below)]


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in value or "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value.get("enum", [value.get("const")]))
    options = [option for option in (*value.get("anyOf", ()), *value.get("oneOf", ())) if option.get("type") != "null"]
    if any("value" in option.get("properties", {}) for option in options):
        return "number, or {value, low, high, source}"
    if options:
        return " or ".join(dict.fromkeys(map(_type, options)))
    kind = value.get("type", "any")
    if kind == "array":
        return f"list of {_type(value.get('items', {}))}"
    if kind == "object":
        return f"table of {_type(value['additionalProperties'])}" if value.get("additionalProperties") else "table"
    names = [kind] if isinstance(kind, str) else kind
    if "boolean" in names:
        return "true or false"
    return "text" if names[0] == "string" else "number"


def _written(default: object) -> str:
    if default is None or (isinstance(default, dict | list) and not default):
        return ""
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    return f"`{str(default).replace('|', ' ')}`"


def _docstrings() -> dict[tuple[str, str], str]:
    """Return the docstring of each field of each class, by the name of the class and of the key."""
    found = {}
    for path in sorted(
        (
            *SOURCES.glob("fleet/*.py"),
            *SOURCES.glob("planning/spec/*.py"),
            SOURCES / "planning" / "saving_claim.py",
            *SOURCES.glob("workload/slo.py"),
        )
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            for entry, after in zip(node.body, node.body[1:], strict=False):
                text = _text(after)
                if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name) and text:
                    found[node.name, _RENAMED.get(entry.target.id, entry.target.id)] = text
    return found


_RENAMED: Final = {"kv_bytes_per_s": "kv_gbps", "expert_parallel": "ep"}


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split()).replace("|", "\\|")
    return ""


def metrics_reference() -> str:
    """Return the page on the metrics of the gateway, from a page that the gateway writes."""
    fleet = RoutedFleet(
        name="example",
        addresses=("10.0.0.1:8000",),
        pools=("pool",),
        engines=("vllm",),
        models=("model",),
        served=("model",),
        classes=(RoutedClass(name="class", model="model", input_tokens=1, output_tokens=1, ttft_s=None, tpot_s=None),),
        endpoints=new_endpoints(1),
        kinds=(RoutedPool(name="pool", model="model", most=1),),
        kind_records=new_endpoints(1),
    )
    envoy = dict.fromkeys(ENVOY_COUNTERS.values(), 0.0)
    counts, states = np.zeros((1, 1), COUNTS), np.zeros(1, PICKER_STATE)
    tables = np.zeros(1, REPORT), counts, states
    more = [*_usage(fleet).lines(), *lost_lines(0)]
    page = metrics_page(fleet, *tables, envoy, DesiredReplicas(fleet), more).decode()
    lines = [
        "# Metrics of the gateway",
        "",
        "Generated from the page of `penstock route`; labels and type in italics.",
        "[Alerts](../troubleshooting.md#gateway-alerts) use them.",
        "",
    ]
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", page, re.MULTILINE))
    for name, text in re.findall(r"^# HELP (\S+) (.+)$", page, re.MULTILINE):
        sample = re.search(rf"^{name}(?:_count)?(?:\{{(.*)\}})? ", page, re.MULTILINE)
        labels = ", ".join(re.findall(r"(\w+)=", (sample and sample[1]) or ""))
        lines.append(f"- `{name}` {text} *{', '.join(filter(None, (labels, kinds[name])))}*")
    return "\n".join(lines) + "\n"


def _usage(fleet: RoutedFleet) -> UsageMetrics:
    """Return the metrics of one request."""
    usage = UsageMetrics(now_s=0.0)
    usage.use(fleet)
    outcome = RequestOutcome(
        ended_unix_s=2.0,
        duration_s=1.0,
        waited_s=0.0,
        ttft_s=0.5,
        tenant="tenant",
        model="model",
        slo_class="class",
        pool="pool",
        endpoint="10.0.0.1:8000",
        status=200,
        failed=False,
        request_bytes=400,
        input_tokens=100,
        cached_tokens=0,
        output_tokens=10,
        response_bytes=1000,
        streamed=True,
        prompt_from="engine",
        tokens_from="engine",
        kept=True,
    )
    usage.add(outcome_rows([outcome]))
    usage.look(SETTLE_EVERY_S, {})
    return usage


def environment_page(exit_codes: tuple[tuple[int, str], ...]) -> str:
    """Return the page on exit codes and environment variables."""
    lines = ["# Exit codes and environment", "", "| Exit code | Meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in exit_codes]
    lines += ["", "Variables:", ""]
    return "\n".join([*lines, *(f"- `{name}` {meaning}" for name, meaning in VARIABLES.items())]) + "\n"
