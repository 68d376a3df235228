"""Divides the cells of a guide into maps: one for each model, output length and SLO."""

from collections.abc import Iterator

from penstock.guide.grid import WorkloadShape
from penstock.guide.guide_result import GuideCell, GuideResult


def maps_of(result: GuideResult) -> Iterator[tuple[WorkloadShape, list[GuideCell]]]:
    """Yield the cells of each map; the first shape stands for all."""
    found: dict[tuple[object, ...], list[GuideCell]] = {}
    for cell in result.cells:
        shape = cell.shape
        slo = (shape.slo.tpot_s, shape.slo.e2e_s, shape.slo.attainment_fraction, _base_ttft(shape, result))
        found.setdefault((shape.model, shape.output_tokens, slo), []).append(cell)
    yield from ((cells[0].shape, cells) for cells in found.values())


def _base_ttft(shape: WorkloadShape, result: GuideResult) -> float | None:
    if shape.slo.ttft_s is None:
        return None
    return round(shape.slo.ttft_s - result.grid.ttft_per_1k_s * shape.input_tokens / 1000, 6)


def map_title(shape: WorkloadShape, result: GuideResult) -> str:
    """Return the title of a map: its model, output length and SLO."""
    slo, per_1k, base = f"{shape.slo}", result.grid.ttft_per_1k_s, _base_ttft(shape, result)
    if base is not None and per_1k:
        limits = slo.split(",", 1)
        slo = ",".join([f"ttft={base:g}s + {per_1k * 1e3:g}ms per 1k", *limits[1:]])
    return f"{shape.model}, {shape.output_tokens:,} output tokens, {slo.replace(',', ', ')}"


def place_text(shape: WorkloadShape, result: GuideResult) -> str:
    """Return what tells a workload's map from the others, with a comma behind each part; empty for a single map."""
    grid = result.grid
    parts = [
        shape.model if len(grid.models) > 1 else "",
        f"{shape.output_tokens:,} out" if len(grid.outputs) > 1 else "",
        str(shape.slo) if len(grid.slos) > 1 else "",
    ]
    return "".join(f"{part}, " for part in parts if part)
