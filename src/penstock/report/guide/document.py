"""Defines the JSON document of `guide --json`."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from penstock.guide.guide_result import Axis, Binding, GuidePool
from penstock.planning.spec.resolve_plan import LeftOut
from penstock.report.drawing.json_document import at


class GuideFleetDocument(TypedDict):
    """The cheapest fleet of a vendor for one workload and load."""

    vendor: str
    accelerator: str
    devices: int
    cost_usd: float
    usd_per_mtok: float
    rent_usd_per_device_hour: float | None
    usd_per_rent: float | None
    pools: list[GuidePool]


class GuideCellDocument(TypedDict):
    """One workload at one load; `fleets` has the cheapest fleet of each vendor, the cheapest first."""

    model: Annotated[str, at("shape.model")]
    input_tokens: Annotated[int, at("shape.input_tokens")]
    output_tokens: Annotated[int, at("shape.output_tokens")]
    slo: Annotated[str, at("shape.slo")]
    requests_per_s: float
    vendor: Annotated[str | None, at("winner.vendor")]
    accelerator: Annotated[str | None, at("winner.accelerator")]
    cost_usd: Annotated[float | None, at("winner.cost_usd")]
    cost_p10_usd: Annotated[float | None, at("low_usd")]
    cost_p90_usd: Annotated[float | None, at("high_usd")]
    margin_fraction: float | None
    probability: float | None
    binding: Binding | None
    flip_rent_usd: float | None
    rival_flip_rent_usd: float | None
    near_tie: GuideFleetDocument | None
    why_none: str
    fleets: list[GuideFleetDocument]


class CrossingDocument(TypedDict):
    """A value of an axis at which another vendor becomes cheapest."""

    axis: Axis
    model: Annotated[str, at("shape.model")]
    output_tokens: Annotated[int, at("shape.output_tokens")]
    input_tokens: int
    requests_per_s: float
    low: float
    high: float
    below: str
    above: str
    below_vendor: str
    above_vendor: str


class GuideDocument(TypedDict):
    """The cheapest fleet for each workload of a grid, and where the answer turns."""

    schema: Literal["penstock.guide/1"]
    name: Annotated[str, at("result.name")]
    start: Annotated[str, at("result.start")]
    horizon_years: Annotated[float, at("result.horizon_years")]
    confidence: Annotated[float, at("result.confidence")]
    accelerators: Annotated[list[str], at("result.accelerators")]
    prices: Annotated[dict[str, str], at("result.prices")]
    cells: Annotated[list[GuideCellDocument], at("result.cells")]
    crossings: Annotated[list[CrossingDocument], at("result.crossings")]
    left_out: Annotated[list[LeftOut], at("result.left_out")]
