"""Small guides: real accelerators and a real model, made-up capacities."""

from examples import model
from penstock.catalog import load_accelerator
from penstock.guide.capacity_memory import CapacityFiles
from penstock.guide.guide_file import GuideQuestion, parse_guide
from penstock.guide.guide_result import GuideResult
from penstock.guide.make_guide import make_guide
from penstock.planning.candidates.replica_capacity import length_by_length
from penstock.planning.plan_sources import Sources
from small_plans import TODAY, capacities, whole_node_prices

GUIDE = """
start: 2026-12-01
acquire: [rent]
grid: {models: llama-3.1-8b, prompts: [1k, 8k], loads: [2, 20, 90], slos: ["ttft=1s,tpot=50ms"], ttft_per_1k: 1us}
accelerators:
  - {id: mi300x, rent_usd_per_hour: {value: 2.0, low: 1.7, high: 2.6}, instances: [1, 2]}
  - {id: h200, rent_usd_per_hour: {value: 3.4, low: 3.0, high: 4.0}, instances: [1]}
draws: 500
"""


def sources_of(question: GuideQuestion, mi300x: float, h200: float, spread: float) -> Sources:
    """Accelerators that the guide adds are as fast as an MI300X."""
    rates = {part.id: mi300x for part in question.template.accelerators}
    made_up = capacities(rates | {"h200_sxm": h200}, spread=spread)
    return Sources(
        accelerators=tuple(load_accelerator(part.id) for part in question.template.accelerators),
        prices_of=whole_node_prices,
        model_of=model,
        capacity_of=length_by_length(made_up),
        capacity_note="made up",
    )


def guided(
    text: str = GUIDE,
    mi300x: float = 4.0,
    h200: float = 6.0,
    spread: float = 0.2,
    files: CapacityFiles | None = None,
) -> GuideResult:
    question = parse_guide(text, "guide.yaml", today=TODAY)
    return make_guide(question, sources_of(question, mi300x, h200, spread), files=files)
