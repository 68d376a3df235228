"""Validates objects of Kubernetes without a cluster: core kinds by schemas of the API, custom kinds by definitions."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

CRDS = ("gateway.networking.k8s.io_httproutes.yaml", "inference.networking.k8s.io_inferencepools.yaml")


def find_kind(objects: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the first object of a kind."""
    return next(one for one in objects if one["kind"] == name)


def validate_core(objects: Iterable[dict[str, Any]]) -> set[str]:
    """Hold core objects against the schemas of the API, strictly, and return their kinds."""
    validate = pytest.importorskip("kubernetes_validate")
    core = [one for one in objects if ".k8s.io" not in one["apiVersion"] or one["kind"] == "NetworkPolicy"]
    for one in core:
        validate.validate(one, "1.34", strict=True)
    return {one["kind"] for one in core}


def validate_custom(objects: Iterable[dict[str, Any]], shared: Path, name: str) -> None:
    """Hold the object of a custom kind against its definition, strictly."""
    definition = yaml.safe_load((shared / "compat" / "crds" / name).read_text())["spec"]
    versions = {one["name"]: one["schema"]["openAPIV3Schema"] for one in definition["versions"]}
    one = find_kind(objects, definition["names"]["kind"])
    group, _, version = one["apiVersion"].partition("/")
    assert group == definition["group"]
    jsonschema.Draft202012Validator(_closed(versions[version])).validate(one)


def _closed(schema: Any) -> Any:  # noqa: ANN401 - a JSON schema
    """Return the same schema, refusing fields it does not name, as the API server does with strict validation."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if "properties" in made and "additionalProperties" not in made and made["properties"].keys() - {"name"}:
        made["additionalProperties"] = False
    return made
