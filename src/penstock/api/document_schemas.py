"""Generates the JSON schemas of all documents from their types."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from penstock.api.catalog import (
    CatalogDiffDocument,
    CatalogListDocument,
    CatalogModelsDocument,
    CatalogPricesDocument,
    CatalogShowDocument,
)
from penstock.report.audit import AuditDocument
from penstock.report.bench import BenchDocument
from penstock.report.bill import InvoiceDocument
from penstock.report.calibrate import CalibrateDocument
from penstock.report.drawing.json_document import schema_name
from penstock.report.fit.document import FitDocument
from penstock.report.fit.together import FitTogetherDocument
from penstock.report.guide.document import GuideDocument
from penstock.report.load_results import ResultsDocument
from penstock.report.plan.document import PlanDocument
from penstock.report.plan.shared import SharedPlanDocument
from penstock.report.predict_document import PredictDisaggregatedDocument, PredictDocument
from penstock.report.preflight.document import PreflightDocument
from penstock.report.preflight.host import HostDocument
from penstock.report.preflight.known_releases import LearnDocument, PacksDocument
from penstock.report.preflight.unread import UnreadDocument
from penstock.report.receipts import ReceiptsDocument
from penstock.report.simulate.document import SimulateDocument
from penstock.report.simulate_fleet.document import SimulateFleetDocument
from penstock.report.sweep_document import SweepDocument

_TYPES: Final[tuple[type, ...]] = (
    AuditDocument,
    BenchDocument,
    InvoiceDocument,
    CalibrateDocument,
    CatalogDiffDocument,
    CatalogListDocument,
    CatalogModelsDocument,
    CatalogPricesDocument,
    CatalogShowDocument,
    FitDocument,
    FitTogetherDocument,
    GuideDocument,
    HostDocument,
    LearnDocument,
    PacksDocument,
    PlanDocument,
    PredictDisaggregatedDocument,
    PredictDocument,
    PreflightDocument,
    ReceiptsDocument,
    ResultsDocument,
    SharedPlanDocument,
    SimulateDocument,
    SimulateFleetDocument,
    SweepDocument,
    UnreadDocument,
)
DOCUMENTS: Final[Mapping[str, Any]] = {schema_name(document): document for document in _TYPES}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema(name: str) -> dict[str, object]:
    """Return the JSON schema of the document with this `schema` name. The schema allows unknown fields."""
    made = TypeAdapter(DOCUMENTS[name]).json_schema(mode="serialization", schema_generator=_ResultSchema)
    return {"$schema": _DIALECT, "$id": f"urn:{name.replace('/', ':')}", **_allow_later_fields(made)}


class _ResultSchema(GenerateJsonSchema):
    """Generator of the schemas of results. Every field is required, even a field that has a default in the code."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401, ARG002, FBT001 - pydantic's
        """Return true for every field except fields of type bytes, which documents leave out."""
        return not self._is_bytes(field)

    def default_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's
        """Return the schema of a field without its default."""
        return self.generate_inner(schema["schema"])

    def _is_bytes(self, field: Any) -> bool:  # noqa: ANN401 - pydantic's
        schema = field.get("schema", {})
        while schema.get("type") == "default":
            schema = schema["schema"]
        return bool(schema.get("type") == "bytes")


def _allow_later_fields(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove fields of type bytes from a schema.

    Also remove `additionalProperties: false`, so that documents with fields of later versions validate.
    """
    return {
        key: _allow_later_fields(value)
        if isinstance(value, dict)
        else [_opened_item(item) for item in value]
        if isinstance(value, list)
        else value
        for key, value in schema.items()
        if not (key == "additionalProperties" and value is False) and not _is_bytes(value)
    }


def _opened_item(item: object) -> object:
    return _allow_later_fields(item) if isinstance(item, dict) else item


def _is_bytes(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("format") == "binary"
