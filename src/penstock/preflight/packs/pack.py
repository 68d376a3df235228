"""A data pack: what one release of an engine accepts, dated, with its origin and a checksum."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from penstock.errors import CatalogError, DeploymentError
from penstock.fleet.release import Release
from penstock.preflight.packs.release_tables import ReleaseTables

SCHEMA: Final = "penstock.pack/1"
LEARNABLE: Final = ("vllm", "sglang")
"""Engines whose releases can be learnt."""
_MAX_BYTES: Final = 4 * 2**20
_MAX_TEXT: Final = 200
_MAX_NAMES: Final = 20_000
_KEYS: Final = frozenset(
    {
        *("schema", "engine", "release", "learned_on", "source", "source_sha256", "flags", "negations", "variables"),
        *("choices", "kinds", "architectures", "defaults", "rules", "checksum"),
    }
)
_STANDINGS: Final = ("holds", "moved", "gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """One release of an engine, as it was read."""

    engine: str
    release: Release
    learned_on: str
    """Day on which the release was read, such as 2026-11-18."""
    source: str
    """Name of the wheel or package that was read."""
    source_sha256: str
    """Checksum of the wheel. Empty for an installed package."""
    tables: ReleaseTables
    rules: Mapping[str, str]
    """For each rule that applies to the release, whether the lines that it cites hold, moved or are gone."""

    @property
    def file_name(self) -> str:
        """Name of the file of the pack."""
        return f"{self.engine}-{self.release}.json"


def write_pack(pack: Pack) -> str:
    """Return a pack as JSON, with its checksum. The same release gives the same text on the same day."""
    document = _document(pack)
    return json.dumps({**document, "checksum": _checksum(document)}, indent=1, ensure_ascii=False) + "\n"


def _document(pack: Pack) -> dict[str, Any]:
    tables = pack.tables
    return {
        "schema": SCHEMA,
        "engine": pack.engine,
        "release": str(pack.release),
        "learned_on": pack.learned_on,
        "source": pack.source,
        "source_sha256": pack.source_sha256,
        "flags": sorted(tables.flags),
        "negations": sorted(tables.negations),
        "variables": sorted(tables.variables),
        "choices": {flag: sorted(values) for flag, values in sorted(tables.choices.items())},
        "kinds": dict(sorted(tables.kinds.items())),
        "architectures": sorted(tables.architectures),
        "defaults": dict(sorted(tables.defaults.items())),
        "rules": dict(sorted(pack.rules.items())),
    }


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def read_pack(data: bytes, name: str) -> Pack:
    """Read and check a pack. An error is one line that names the file, the problem and the fix."""
    if len(data) > _MAX_BYTES:
        raise CatalogError(f"{name} has {len(data):,} bytes; a pack has at most {_MAX_BYTES:,}")
    try:
        raw = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        problem = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise CatalogError(f"{name} is not a pack: {problem}; learn the release again") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise CatalogError(f"{name} is not a pack of the form {SCHEMA}; learn the release again")
    if raw.keys() != _KEYS:
        strange = min(raw.keys() ^ _KEYS)
        raise CatalogError(f"{name}: the key '{strange[:40]}' is missing or unknown; learn the release again")
    stated = raw.pop("checksum")
    if stated != _checksum(raw):
        raise CatalogError(f"{name}: the checksum does not match, so the pack was changed; learn the release again")
    return _pack(raw, name)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _pack(raw: Mapping[str, Any], name: str) -> Pack:
    engine = _text(raw["engine"], name, "engine")
    if engine not in LEARNABLE:
        raise CatalogError(
            f"{name}: '{engine[:40]}' is not an engine whose releases are learnt ({', '.join(LEARNABLE)})"
        )
    try:
        release = Release(_text(raw["release"], name, "release"))
    except DeploymentError as error:
        raise CatalogError(f"{name}: {error}") from None
    tables = ReleaseTables(
        flags=_names(raw["flags"], name, "flags"),
        negations=_names(raw["negations"], name, "negations"),
        variables=_names(raw["variables"], name, "variables"),
        choices={
            flag: _names(values, name, flag) for flag, values in _mapping(raw["choices"], name, "choices").items()
        },
        kinds={flag: _text(kind, name, flag) for flag, kind in _mapping(raw["kinds"], name, "kinds").items()},
        architectures=_names(raw["architectures"], name, "architectures"),
        defaults={key: _number(value, name, key) for key, value in _mapping(raw["defaults"], name, "defaults").items()},
    )
    rules = {rule: _text(value, name, rule) for rule, value in _mapping(raw["rules"], name, "rules").items()}
    if strange := next((value for value in rules.values() if value not in _STANDINGS), None):
        raise CatalogError(f"{name}: '{strange[:40]}' is not one of {', '.join(_STANDINGS)}")
    if not tables.flags:
        raise CatalogError(f"{name} lists no flags, so that it describes no release; learn the release again")
    return Pack(
        engine=engine,
        release=release,
        learned_on=_text(raw["learned_on"], name, "learned_on"),
        source=_text(raw["source"], name, "source"),
        source_sha256=_text(raw["source_sha256"], name, "source_sha256"),
        tables=tables,
        rules=rules,
    )


def _text(value: object, name: str, key: str) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise CatalogError(f"{name}: {key[:40]} must be one line of at most {_MAX_TEXT} characters")
    return value


def _names(value: object, name: str, key: str) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > _MAX_NAMES:
        raise CatalogError(f"{name}: {key[:40]} must be a list of at most {_MAX_NAMES:,} names")
    return frozenset(_text(item, name, key) for item in value)


def _mapping(value: object, name: str, key: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or len(value) > _MAX_NAMES:
        raise CatalogError(f"{name}: {key} must be an object of at most {_MAX_NAMES:,} entries")
    return {_text(item, name, key): entry for item, entry in value.items()}


def _number(value: object, name: str, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CatalogError(f"{name}: the default of {key[:40]} must be a number")
    return float(value)
