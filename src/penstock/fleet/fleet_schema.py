"""Builds the JSON schema of the fleet file, for completion in editors."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.fleet.engine_settings import settings_schema
from penstock.fleet.pools import ROLES, VERSION

Schema = dict[str, object]

_TEXT: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_COUNT: Final = {"type": "integer", "minimum": 1}
_AMOUNT: Final = {"type": ["number", "string", "null"]}


def fleet_schema() -> Schema:
    """Return the schema. A test compares its keys with those that the parser reads."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A fleet, as `penstock plan --fleet` writes it and `simulate --fleet` reads it",
        **_table(
            {
                "version": {"const": VERSION},
                "name": _TEXT,
                "note": {"type": ["string", "null"]},
                "nodes": _list(_node()),
                "pools": _list(_pool()),
                "routes": _list(_route()),
            },
            optional=("note",),
        ),
    }


def _table(properties: Mapping[str, object], *, optional: Sequence[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }


def _list(entries: object) -> Schema:
    return {"type": "array", "items": entries}


def _said(schema: Mapping[str, object], words: str) -> Schema:
    return {**schema, "description": words}


def _node() -> Schema:
    return _table(
        {
            "accelerator": _said(_TEXT, "a name from `penstock catalog list`"),
            "site": _TEXT,
            "nodes": _COUNT,
            "spare_nodes": _said(_WHOLE, "of them, the ones that stand by"),
        }
    )


def _pool() -> Schema:
    split = _table({"tp": _COUNT, "pp": _COUNT, "dp": _COUNT, "ep": {"type": "boolean"}})
    settings = {"type": "object", "properties": settings_schema(), "additionalProperties": False}
    engine = _table(
        {
            "name": _TEXT,
            "version": {"type": ["string", "number"]},
            "settings": _said(settings, "what the engine is started with, by its own names"),
        },
        optional=("settings",),
    )
    return _table(
        {
            "name": _said(_TEXT, "pools are told apart by it"),
            "model": _said(_TEXT, "a name from `penstock catalog models`, a config.json or a checkpoint directory"),
            "adapters": _said(_list(_TEXT), "LoRA adapters its replicas have, by the names requests ask for"),
            "weights": _said(_TEXT, "the format most weight bytes are in"),
            "kv": _TEXT,
            "accelerator": _said(_TEXT, "a name from `penstock catalog list`"),
            "vendor": _said(_TEXT, "what fails together: a fallback is of another"),
            "site": _TEXT,
            "replicas": _COUNT,
            "split": split,
            "drafted_tokens": _WHOLE,
            "engine": engine,
            "role": {"enum": list(ROLES)},
            "feeds": _said(_TEXT, "of a pool that prefills: the pool its KV goes to"),
            "kv_gbps": _said(_AMOUNT, "of a pool that prefills: GB a second that one replica sends KV at"),
            "usd_per_hour": _said(_AMOUNT, "of one replica"),
            "elastic": _said(
                {"type": "boolean"}, "whether somebody gives replicas without work back: then dollars count in routing"
            ),
            "endpoints": _said(_list(_TEXT), "host:port, one per replica, once they run"),
        },
        optional=("adapters", "drafted_tokens", "feeds", "kv_gbps", "usd_per_hour", "elastic"),
    )


def _route() -> Schema:
    slo = _table(
        {"ttft_s": _AMOUNT, "tpot_s": _AMOUNT, "e2e_s": _AMOUNT, "attainment_fraction": _AMOUNT},
        optional=("ttft_s", "tpot_s", "e2e_s"),
    )
    return _table(
        {
            "workload": _TEXT,
            "input_tokens": _COUNT,
            "output_tokens": _COUNT,
            "slo": _said(slo, "seconds, and the fraction of requests that must keep them"),
            "peak_requests_per_s": _AMOUNT,
            "weights": _said(
                {"type": "object", "additionalProperties": _AMOUNT}, "pool name to its share of these requests"
            ),
        }
    )
