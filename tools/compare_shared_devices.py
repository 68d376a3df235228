"""Compares shared devices with devices of their own and with swapping: 50 models with Zipf popularity over a day.

Prints a table in Markdown. Every fleet serves the same requests, with all step times and wake times at their P90.
"""

import sys
from collections.abc import Sequence

from penstock.catalog import load_accelerator
from penstock.catalog.device_prices import hourly_rent
from penstock.economics.finance import HOURS_PER_YEAR
from penstock.fleet import Deployment
from penstock.fleet.pools import Eviction
from penstock.fleet.serving_engines import serving_defaults
from penstock.performance.shipped.shipped_runs import model_of, shipped_efficiencies
from penstock.planning.shared_placement.model_loads import ModelLoad, SizedModel, size_model
from penstock.planning.shared_placement.shared_fleet import SharedFleet, assign, draw_requests, simulate_fleet
from penstock.planning.spec.plan_types import Bucket, Share
from penstock.simulation.placement import place
from penstock.workload import Requests, parse_slo

MODELS = (
    *("llama-3.1-8b", "qwen3-8b", "mistral-7b", "gemma-2-9b", "phi-4", "qwen2.5-14b", "mistral-nemo-12b"),
    *("starcoder2-7b", "qwen3-14b", "llama-3.2-3b", "qwen3-4b", "gpt-oss-20b"),
)
"""Shapes of the 50 models, in turn by popularity: fine-tuned copies have the shape of their base."""
COUNT, EXPONENT, TOTAL_PER_S, HOURS = 50, 1.0, 1.0, 24.0
SLO = "ttft=5s,tpot=60ms,attain=95%"
INPUT_TOKENS, OUTPUT_TOKENS = 1024, 256


FLEETS: tuple[tuple[str, Eviction], ...] = (("LRU", "least-recently-used"), ("least harm", "least-harm"))
"""Labels of the eviction policies."""


def sized_models(accelerator_id: str) -> list[SizedModel]:
    """Return the 50 models with their loads on one device of an accelerator."""
    accelerator, efficiencies = load_accelerator(accelerator_id), shipped_efficiencies()
    weights = [1 / (rank + 1) ** EXPONENT for rank in range(COUNT)]
    found = []
    for rank, weight in enumerate(weights):
        model = model_of(MODELS[rank % len(MODELS)])
        load = ModelLoad(
            name=f"{rank + 1} {model.name}",
            model=model,
            slo=parse_slo(SLO),
            requests_per_s=TOTAL_PER_S * weight / sum(weights),
            shares=(Share(bucket=Bucket(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS), fraction=1.0),),
        )
        engine = serving_defaults("vllm", accelerator, version=None, tp=1, pp=1)
        sized = size_model(
            load,
            Deployment(model=model, accelerator=accelerator, engine=engine),
            lambda deployment, lengths: place(deployment, "vllm", efficiencies, typical_lengths=lengths),
            host=True,
        )
        if sized is None:
            raise ValueError(f"{load.name} does not fit on {accelerator_id}")
        found.append(sized)
    return found


def fewest(models: Sequence[SizedModel], asked: Requests, eviction: Eviction) -> SharedFleet | None:
    """Return the fleet with the fewest devices that keeps every SLO, by bisection over the number of devices."""
    low, high, best = 0, len(models), None
    while high - low > 1 or best is None:
        count = (low + high) // 2 if high - low > 1 else high
        device_of = assign(models, count)
        fleet = None if device_of is None else simulate_fleet(models, device_of, asked, eviction=eviction)
        if fleet is not None and fleet.met:
            high, best = count, fleet
        elif count == high:
            return None
        else:
            low = count
        print(f"{eviction}, {count} devices: {'kept' if fleet and fleet.met else 'missed'}", file=sys.stderr)
    return best


def row(name: str, fleet: SharedFleet | None, usd_per_hour: float) -> str:
    """Return one row of the table."""
    if fleet is None:
        return f"| {name} | none keeps the SLO | | | | | |"
    outcome, devices = fleet.outcome, len(fleet.devices)
    met = sum(item.met for item in outcome.classes) / sum(item.asked for item in outcome.classes)
    cold = sum(item.cold for item in outcome.classes) / outcome.requests
    swaps = sum(device.evictions for device in outcome.devices)
    usd = devices * usd_per_hour * HOURS_PER_YEAR
    return (
        f"| {name} | {devices} | ${usd / 1000:,.0f}k | {met:.2%} | {fleet.worst_attained_fraction:.1%} | {cold:.2%} | "
        f"{swaps:,} |"
    )


def main() -> int:
    """Print the table for each accelerator named, or for MI300X and H100."""
    for name in sys.argv[1:] or ["mi300x", "h100"]:
        models = sized_models(name)
        asked = draw_requests(models, hours=HOURS, seed=0)
        rent = hourly_rent(load_accelerator(name).id)
        usd_per_hour = 0.0 if rent is None else rent.usd_per_device
        alone = simulate_fleet(models, range(COUNT), asked, eviction="least-harm")
        print(
            f"\n{COUNT} models on {name}, {len(asked):,} requests in {HOURS:g} h, SLO {SLO}\n\n"
            "| fleet | devices | rent per year | in time | worst model | cold requests | evictions |\n"
            "|---|---|---|---|---|---|---|"
        )
        print(row("a device per model", alone, usd_per_hour), flush=True)
        found = {}
        for label, eviction in FLEETS:
            found[label] = fewest(models, asked, eviction)
            print(row(f"{label}, fewest that keep the SLO", found[label], usd_per_hour), flush=True)
        smallest = min(len(fleet.devices) for fleet in found.values() if fleet is not None)
        for count in range(smallest - 1, max(0, smallest - 4), -1):
            device_of = assign(models, count)
            for label, eviction in FLEETS if device_of is not None else ():
                fleet = simulate_fleet(models, device_of or (), asked, eviction=eviction)
                print(row(label, fleet, usd_per_hour), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
