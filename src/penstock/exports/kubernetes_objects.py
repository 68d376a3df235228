"""Writes objects of Kubernetes as YAML."""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

_MAX_NAME: Final = 63


def object_name(pool: str) -> str:
    """Return a pool's name as Kubernetes allows it: lower-case letters, digits and dashes, at most 63 characters."""
    return re.sub(r"[^a-z0-9]+", "-", pool.lower())[:_MAX_NAME].strip("-")


def config_map(name: str, data: Mapping[str, str], *, setup: str) -> dict[str, Any]:
    """Return a ConfigMap with files. `setup` describes the deployment that the files are about."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {"penstock/setup": setup}},
        "data": dict(data),
    }


def write_yaml(document: Mapping[str, Any]) -> str:
    """Return a document as YAML."""
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110)
    return text
