"""Builds the JSON schema of the plan file, with which editors complete its keys."""

from collections.abc import Mapping, Sequence
from typing import Final

Schema = dict[str, object]

_AMOUNT: Final = {"type": ["number", "string"]}
_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": ["integer", "string"]}
_DATE: Final = {"type": "string", "description": "a day: 2027-06-01"}


def plan_schema() -> Schema:
    """Return the schema; a test compares its keys with those the plan reader accepts."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A plan for `penstock plan`",
        **_table(
            {
                "name": _TEXT,
                "note": _TEXT,
                "start": _said(_DATE, "the first day of service; default: today"),
                "horizon_years": _said(_AMOUNT, "0.25 to 15; default 3"),
                "step_months": _said(
                    _WHOLE, "how often the fleet may change; default once, yearly with growth or terms in turn"
                ),
                "orders_from": _said(_DATE, "nothing can be ordered before; see `lead_weeks`"),
                "engine": _engine(),
                "workloads": _list(_workload()),
                "accelerators": {"oneOf": [{"const": "all verified"}, _list({"oneOf": [_TEXT, _part()]})]},
                "owned": _said(_list({"oneOf": [_TEXT, _owned()]}), "nodes that stand there already: 64xh100"),
                "acquire": _list({"enum": ["buy", "rent", "contract"]}),
                "sites": _list(_site()),
                "stacks": _table({vendor: _stack() for vendor in ("amd", "nvidia", "intel", "google")}),
                "engineer_usd_per_year": _input(),
                "finance": _finance(),
                "node": _table(
                    {key: _input() for key in ("host_usd", "network_usd_per_device", "idle_power", "annual_failures")}
                ),
                "constraints": _constraints(),
                "claims": {"type": "array"},
                "seed": _WHOLE,
                "draws": _WHOLE,
                "sure": _said({"type": "boolean"}, "every amount is meant, however unlikely"),
            },
            required=("workloads",),
        ),
    }


def _table(properties: Mapping[str, object], *, required: Sequence[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _list(entries: object) -> Schema:
    return {"type": "array", "items": entries}


def _said(schema: Mapping[str, object], words: str) -> Schema:
    return {**schema, "description": words}


def _input(words: str = "a number, or {value, low, high, source}") -> Schema:
    ranged = _table({"value": _AMOUNT, "low": _AMOUNT, "high": _AMOUNT, "source": _TEXT}, required=("value",))
    return {"oneOf": [_AMOUNT, ranged], "description": words}


def _engine() -> Schema:
    """Return the schema of `engine`; a workload's value takes precedence over the plan's."""
    return {
        "oneOf": [_TEXT, _list(_TEXT)],
        "description": "vllm, or several to choose from; default: every engine measured on the accelerator",
    }


def _workload() -> Schema:
    lengths = _table({"input": _WHOLE, "output": _WHOLE, "share": _AMOUNT}, required=("input", "output"))
    return _table(
        {
            "name": _TEXT,
            "model": _said(_TEXT, "a name from `penstock catalog models`, a config.json or a checkpoint directory"),
            "weights": _list(_TEXT),
            "engine": _engine(),
            "kv": {"enum": ["auto", "bf16", "fp16", "fp8"]},
            "mtp": {"type": "boolean", "description": "whether the checkpoint's own layers may draft; default true"},
            "disaggregated": {
                "type": "boolean",
                "description": "whether prompts and answers may have replicas of their own; default false",
            },
            "slo": _said(_TEXT, "ttft=2s,tpot=60ms,attain=95%"),
            "requests_per_s": _input("at the peak; or `users`"),
            "users": _input("requests in flight at the peak; or `requests_per_s`"),
            "think": _said(_TEXT, "pause of a user between two requests: 10s"),
            "growth_per_year": _input(),
            "mean_load": _input("mean demand over peak demand"),
            "lengths": _said(_list(lengths), "or `trace`"),
            "trace": _said(_TEXT, "a CSV, JSONL or Parquet of requests; or `lengths`"),
            "columns": {"type": "object", "additionalProperties": _TEXT, "description": "arrival, input, output, unit"},
        },
        required=("name", "model", "slo"),
    )


def _part() -> Schema:
    contract = _table(
        {"months": _WHOLE, "years": _WHOLE, "usd_per_hour": _input("$ per device and hour")}, required=("usd_per_hour",)
    )
    return _table(
        {
            "id": _said(_TEXT, "a name from `penstock catalog list`"),
            "buy_usd": _input("$ of a device, host and network apart"),
            "node_usd": _input("$ of a whole server"),
            "rent_usd_per_hour": _input("$ per device and hour, by the hour"),
            "contracts": _list(contract),
            "lead_weeks": _said(_AMOUNT, "from order to service"),
            "discounts": _list(
                _table(
                    {"devices": _said(_WHOLE, "bought in all, at whatever time"), "off": _AMOUNT},
                    required=("devices", "off"),
                )
            ),
            "available": _said(_DATE, "the first day a node of it can serve"),
            "max_nodes": _WHOLE,
            "node_kw": _said(_AMOUNT, "a server at its maximum"),
            "tp": _list(_WHOLE),
        },
        required=("id",),
    )


def _owned() -> Schema:
    return _table(
        {
            "id": _TEXT,
            "nodes": _WHOLE,
            "devices": _WHOLE,
            "age_years": _AMOUNT,
            "book_usd": _said(_AMOUNT, "what the books say one node is worth today"),
            "resale_usd": _input("what selling one node today would bring"),
            "until": _said(_DATE, "when its use ends"),
            "site": _TEXT,
        },
        required=("id",),
    )


def _site() -> Schema:
    return _table(
        {
            "name": _TEXT,
            "usd_per_kwh": _input(),
            "pue": _input(),
            "hosting_usd_per_kw_month": _input(),
            "power_cap_kw": _said(_AMOUNT, "owned nodes at their maximum, cooling apart"),
            "deny": _said(_list(_TEXT), "vendors or accelerators that may not stand here"),
        },
        required=("name",),
    )


def _stack() -> Schema:
    return _table(
        {
            "engineers": _input("extra engineers as soon as one node of the vendor serves"),
            "engineers_per_1000_devices": _input("and for each 1,000 of its devices; amd: 2.5 if none are stated"),
            "support_usd_per_device_year": _input("of hardware that is owned; a rent holds it"),
            "licence_usd_per_device_year": _input("of software, however its device is had"),
            "software_gain_per_year": _input("how much more replicas carry with each year's engines"),
        }
    )


def _finance() -> Schema:
    return _table(
        {
            "discount_rate": _input(),
            "depreciation_years": _input("for the books"),
            "salvage": _input("of the price, what fully depreciated hardware sells for"),
            "resale": _input(
                "of book value above salvage, what a sale at the end of the horizon is counted on to bring"
            ),
            "price_change_per_year": _input("of what is bought or rented later"),
        }
    )


def _constraints() -> Schema:
    return _table(
        {
            "spare_nodes": _WHOLE,
            "utilisation": _input(),
            "min_vendors": _WHOLE,
            "min_vendor_share": _said(_AMOUNT, "what each of them carries at least"),
            "max_vendor_share": _AMOUNT,
            "share_of": {"enum": ["load", "devices"]},
        }
    )
