"""How fast is the simulator? Requests a second on one core, from ten thousand to ten million, and its memory."""

import argparse
import resource
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

from penstock.compiled.library import load
from penstock.performance.step.step_cost import StepCost
from penstock.simulation.replica import Replica, ReplicaPool
from penstock.simulation.run import simulate
from penstock.workload import LogNormal, Poisson, Requests, SystemPrompts, Workload, fit_empirical, read_trace
from penstock.workload.synthetic.lengths import Empirical

COST = StepCost(step_s=0.012, decode_s=2e-5, prefill_token_s=3e-5, context_s=(3e-8,), pair_s=(1e-9,))
"""Of the order of an 8B model on one accelerator."""
POOL = ReplicaPool(name="one", replica=Replica(cost=COST, kv_blocks=6000))
"""96,000 tokens of KV: at the rates below it is full at times, so requests are preempted and prompts evicted."""


def lengths(trace: Path | None) -> tuple[Empirical | LogNormal, str]:
    """Take pairs of lengths from a trace, or a fit of the Azure conversation trace where there is none."""
    if trace is not None:
        return fit_empirical(read_trace(trace)), trace.name
    shape = LogNormal(
        input_median_tokens=1020,
        input_sigma=0.9,
        output_median_tokens=129,
        output_sigma=0.9,
        max_input_tokens=14050,
        max_output_tokens=1000,
    )
    return shape, "log-normal"


def measure(workload: Workload, requests: int, rate_per_s: float) -> tuple[float, float, str]:
    """Run once; return the processor seconds of simulating and of drawing the requests, and what happened."""
    drawing_s = 0.0

    def drawn() -> Iterator[Requests]:
        nonlocal drawing_s
        blocks = workload.blocks(seed=1, requests=requests, rate_per_s=rate_per_s)
        while True:
            start_s = process_time()
            block = next(blocks, None)
            drawing_s += process_time() - start_s
            if block is None:
                return
            yield block

    start_s = process_time()
    outcome = simulate([POOL], drawn())
    spent_s = process_time() - start_s
    pool = outcome.pools[0]
    hits = pool.hit_fraction or 0.0
    happened = f"{pool.preemptions / requests:.2%} preempted, {hits:.0%} hit, KV {pool.kv_mean_fraction:.0%}"
    return spent_s - drawing_s, drawing_s, happened


def main() -> None:
    """Print one line per size and repetition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="take the lengths from this trace")
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rate", type=float, default=11.0)
    asked = parser.parse_args()
    start_s = perf_counter()
    load()
    print(f"compile or load: {perf_counter() - start_s:.1f} s")
    drawn_from, name = lengths(asked.trace)
    workload = Workload(
        name=name, arrivals=Poisson(), lengths=drawn_from, sharing=SystemPrompts(prompts=50, tokens=200)
    )
    sizes = [size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= asked.most]
    for _ in range(asked.repeat):
        for size in sizes:
            spent_s, drawing_s, happened = measure(workload, size, asked.rate)
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{size:>10,} requests: {size / spent_s:>9,.0f}/s simulating, {size / drawing_s:>11,.0f}/s drawing, "
                f"peak {peak_mb:,.0f} MB; {happened}"
            )


if __name__ == "__main__":
    main()
