"""Reads config.json as untrusted input. The type and bounds of every value are checked, and errors name the key."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from penstock.errors import ConfigError

MAX_CONFIG_BYTES: Final = 16 * 2**20
MAX_LAYERS: Final = 1024
MAX_WIDTH: Final = 2**24
"""Upper limit of any dimension. In published models, the largest vocabulary is 2**18 and the largest width is 2**17."""

_T = TypeVar("_T")


def parse_json(data: bytes, where: str) -> "Config":
    """Parse the bytes of a JSON file that must contain an object."""
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{where}: the file has {len(data):,} bytes; a config may have at most {MAX_CONFIG_BYTES:,}")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:160]
        raise ConfigError(f"{where}: not valid JSON: {problem}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: expected a JSON object, found {_type_name(raw)}")
    return Config(raw, where)


class Config:
    """JSON object whose values are read with a type and bounds. Errors name the key."""

    def __init__(self, raw: Mapping[str, object], where: str) -> None:
        self.raw = raw
        self.where = where

    def has(self, key: str) -> bool:
        """Return whether the key is present and not null."""
        return self.raw.get(key) is not None

    def integer(self, *keys: str, default: int | None = None, low: int = 1, high: int = MAX_WIDTH) -> int:
        """Read an integer under the first of `keys` that is present."""
        key = self._first(keys)
        if key is None:
            return self._default(default, keys)
        value = self.raw[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "must be an integer, found", value)
        if not low <= value <= high:
            raise ConfigError(f"{self.where}: {key} is {_shorten(value)}; expected {low:,} to {high:,}")
        return value

    def number(self, key: str, default: float | None = None, low: float = 0.0, high: float = 1e9) -> float:
        """Read a number."""
        if not self.has(key):
            return self._default(default, (key,))
        value = self.raw[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "must be a number, found", value)
        if not low <= value <= high:
            raise ConfigError(f"{self.where}: {key} is {_shorten(value)}; expected {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Read a boolean."""
        if not self.has(key):
            return default
        value = self.raw[key]
        if not isinstance(value, bool):
            raise self._wrong(key, "must be true or false, found", value)
        return value

    def text(self, *keys: str, default: str | None = None) -> str:
        """Read a string under the first of `keys` that is present."""
        key = self._first(keys)
        if key is None:
            return self._default(default, keys)
        value = self.raw[key]
        if not isinstance(value, str):
            raise self._wrong(key, "must be a string, found", value)
        return value[:256]

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of strings. The list is empty if the key is absent."""
        items = self._list(key)
        for item in items:
            if not isinstance(item, str):
                raise self._wrong(key, "must be a list of strings, found", item)
        return tuple(str(item) for item in items)

    def integers(self, key: str) -> tuple[int, ...]:
        """Read a list of integers. The list is empty if the key is absent."""
        items = self._list(key)
        found = []
        for item in items:
            if isinstance(item, bool) or not isinstance(item, int) or abs(item) > MAX_WIDTH:
                raise self._wrong(key, "must be a list of integers, found", item)
            found.append(item)
        return tuple(found)

    def section(self, key: str) -> "Config":
        """Read a required nested object."""
        found = self.optional(key)
        if found is None:
            raise ConfigError(f"{self.where}: {key} is missing")
        return found

    def optional(self, key: str) -> "Config | None":
        """Read a nested object, or return None if the key is absent."""
        if not self.has(key):
            return None
        value = self.raw[key]
        if not isinstance(value, dict):
            raise self._wrong(key, "must be an object, found", value)
        return Config(value, f"{self.where}: {key}")

    def sections(self, key: str) -> tuple["Config", ...]:
        """Read a list of objects. The list is empty if the key is absent."""
        found = []
        for number, item in enumerate(self._list(key)):
            if not isinstance(item, dict):
                raise self._wrong(key, "must be a list of objects, found", item)
            found.append(Config(item, f"{self.where}: {key}[{number}]"))
        return tuple(found)

    def layers(self, *keys: str) -> int:
        """Read the number of decoder layers."""
        return self.integer(*(keys or ("num_hidden_layers",)), high=MAX_LAYERS)

    def per_layer(self, key: str, layers: int) -> tuple[str, ...]:
        """Read a list of strings with one entry per layer. The list is empty if the key is absent."""
        names = self.texts(key)
        if names and len(names) < layers:
            raise ConfigError(f"{self.where}: {key} lists {len(names)} layers, but the model has {layers} layers")
        return names[:layers]

    def _list(self, key: str) -> Sequence[object]:
        if not self.has(key):
            return ()
        value = self.raw[key]
        if not isinstance(value, list):
            raise self._wrong(key, "must be a list, found", value)
        return value

    def _first(self, keys: Sequence[str]) -> str | None:
        return next((key for key in keys if self.has(key)), None)

    def _default(self, default: _T | None, keys: Sequence[str]) -> _T:
        if default is None:
            raise ConfigError(f"{self.where}: {' or '.join(keys)} is missing")
        return default

    def _wrong(self, key: str, problem: str, value: object) -> ConfigError:
        return ConfigError(f"{self.where}: {key} {problem} {_type_name(value)}")


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _shorten(value: object) -> str:
    text = str(value) if not isinstance(value, int) or abs(value) < 10**15 else "a huge number"
    return text[:24]
