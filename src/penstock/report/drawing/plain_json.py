"""Converts results to the JSON that `--json` prints.

Values are in SI units and bytes, and keys are named as in the code.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum


def to_json(value: object) -> str:
    """Serialise a result as JSON, with field names as keys.

    Infinity and NaN raise an error instead of being written as `Infinity` or `NaN`.
    """
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def plain_fields(value: object) -> dict[str, object]:
    """Convert a dataclass to a dict of plain values that the caller may extend."""
    document = plain(value)
    return document if isinstance(document, dict) else {}


def plain(value: object) -> object:
    """Convert dataclasses, enums, dates and mappings to JSON types. Fields of type bytes are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        of = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: plain(entry) for name, entry in of.items() if not isinstance(entry, bytes)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
