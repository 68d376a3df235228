"""JSON schema of claim files for editors, generated from the keys that the parser follows."""

from penstock.audit.parsing.claim_kinds import KINDS, ClaimKind


def claims_schema() -> dict[str, object]:
    """Generate the schema of a claim file."""
    said = {
        "type": "object",
        "properties": {
            "who": {"type": "string"},
            "title": {"type": "string"},
            "address": {"type": "string", "description": "https://..."},
            "said_on": {"type": "string", "description": "a day: 2026-06-01"},
        },
        "additionalProperties": False,
    }
    names = {"type": "array", "items": {"type": "string"}}
    claim = {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "says": {"type": "string", "description": "the claim in your words"},
            "key": {"type": "string", "description": "at most twelve of their words, to find the place"},
            "topic": {"type": "string"},
            "source": said,
            "points_at": names,
            "contradicts": names,
            **{name: _kind(kind) for name, kind in KINDS.items()},
        },
        "oneOf": [{"required": [name]} for name in KINDS],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Claims for `penstock audit`",
        "type": "object",
        "properties": {"version": {"const": 1}, "source": said, "claims": {"type": "array", "items": claim}},
        "required": ["version", "claims"],
        "additionalProperties": False,
    }


def _kind(kind: ClaimKind) -> dict[str, object]:
    return {
        "type": "object",
        "description": kind.words,
        "properties": {key.name: dict(key.shape) for key in kind.keys},
        "required": [key.name for key in kind.keys if key.needed],
        "additionalProperties": False,
    }
