"""What is known? The rules and tables every preflight looks things up in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.preflight.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Rules, and the tables predictions read, as their TOML files hold them."""

    rules: tuple[Rule, ...]
    kernels: Mapping[str, Any]
    attention: Mapping[str, Any]
    aiter: Mapping[str, Any]
    flags: Mapping[str, Any]
    choices: Mapping[str, Any]
    kinds: Mapping[str, Any]
    images: Mapping[str, Any]
    recipes: Mapping[str, Any]
    cookbook: Mapping[str, Any]
    architectures: Mapping[str, Any]
    served: Mapping[str, Any]
