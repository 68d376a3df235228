"""Generates the JSON schemas of all documents from their types."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from penstock.api.documents.audit import AuditDocument
from penstock.api.documents.catalog import (
    CatalogDiffDocument,
    CatalogListDocument,
    CatalogModelsDocument,
    CatalogPricesDocument,
    CatalogShowDocument,
)
from penstock.api.documents.fit import FitDocument
from penstock.api.documents.plan import PlanDocument
from penstock.api.documents.predict import PredictDisaggregatedDocument, PredictDocument
from penstock.api.documents.preflight import PreflightDocument
from penstock.api.documents.receipts import ReceiptsDocument
from penstock.api.documents.simulate import SimulateDocument
from penstock.api.documents.simulate_fleet import SimulateFleetDocument

DOCUMENTS: Final[Mapping[str, Any]] = {
    "penstock.audit/1": AuditDocument,
    "penstock.catalog.diff/1": CatalogDiffDocument,
    "penstock.catalog.list/1": CatalogListDocument,
    "penstock.catalog.models/1": CatalogModelsDocument,
    "penstock.catalog.prices/1": CatalogPricesDocument,
    "penstock.catalog.show/1": CatalogShowDocument,
    "penstock.fit/1": FitDocument,
    "penstock.plan/2": PlanDocument,
    "penstock.predict-apart/1": PredictDisaggregatedDocument,
    "penstock.predict/2": PredictDocument,
    "penstock.preflight/2": PreflightDocument,
    "penstock.receipts/3": ReceiptsDocument,
    "penstock.simulate-fleet/4": SimulateFleetDocument,
    "penstock.simulate/3": SimulateDocument,
}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema(name: str) -> dict[str, object]:
    """Generate the JSON schema of a document by its `schema` name; unknown fields are allowed."""
    made = TypeAdapter(DOCUMENTS[name]).json_schema(mode="serialization")
    return {"$schema": _DIALECT, "$id": f"urn:{name.replace('/', ':')}", **_opened(made)}


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove `additionalProperties: false`, so that documents with later fields validate, and all fields of bytes."""
    return {
        key: _opened(value)
        if isinstance(value, dict)
        else [_opened_item(item) for item in value]
        if isinstance(value, list)
        else value
        for key, value in schema.items()
        if not (key == "additionalProperties" and value is False) and not _is_bytes(value)
    }


def _opened_item(item: object) -> object:
    return _opened(item) if isinstance(item, dict) else item


def _is_bytes(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("format") == "binary"
