"""Names what is asked: the situations that users found, and random ones of each kind."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from agree import flip_page, inner, purchases, speeds
from agree.bench import Job
from agree.comparison import Comparison
from agree.doors import START, ask_file
from agree.situations import LLAMA, NAMED, drawn

QUOTED: Final[purchases.Question] = {
    "name": "assistant and RAG for 300 people, rented",
    "start": "2027-01-04",
    "horizon_years": 1,
    "draws": 200,
    "workloads": [
        {
            "name": "chat",
            "model": "llama-3.3-70b",
            "weights": ["fp8"],
            "engine": "vllm",
            "slo": "ttft=2s,tpot=50ms,attain=95%",
            "users": 300,
            "think": "20s",
            "mean_load": "30%",
            "lengths": [{"input": 1500, "output": 350}],
        },
        {
            "name": "rag",
            "model": "llama-3.3-70b",
            "weights": ["fp8"],
            "engine": "vllm",
            "slo": "ttft=4s,tpot=60ms,attain=95%",
            "requests_per_s": {"value": 2, "low": 1, "high": 4},
            "mean_load": "30%",
            "lengths": [{"input": 12288, "output": 500}],
        },
    ],
    "accelerators": [
        {
            "id": "h200",
            "rent_usd_per_hour": {"value": 2.60, "low": 2.40, "high": 2.80},
            "contracts": [{"years": 1, "usd_per_hour": 2.25}],
        },
        {
            "id": "mi355x",
            "rent_usd_per_hour": {"value": 3.10, "low": 2.90, "high": 3.30},
            "contracts": [{"years": 1, "usd_per_hour": 2.70}],
        },
    ],
    "acquire": ["rent", "contract"],
}
"""A user's plan with his own quotes."""
THREE_PARTS: Final[purchases.Question] = {
    "name": "Llama 70B FP8, 2k/400, 8/s, three parts",
    "start": START,
    "horizon_years": 1,
    "draws": 200,
    "workloads": [
        {
            "name": "w",
            "model": "llama-3.3-70b",
            "weights": ["fp8"],
            "slo": "ttft=2s,tpot=50ms,attain=95%",
            "requests_per_s": 8,
            "lengths": [{"input": 2048, "output": 400}],
        }
    ],
    "accelerators": [{"id": "h200"}, {"id": "mi325x"}, {"id": "mi355x"}],
}
"""A guide rents by the hour; a plan also has the contracts of the catalog."""


def jobs_of(*, short: bool) -> list[Job]:
    """Return all jobs, or those of the short bench, which come first: situations that users found, and random ones."""
    named = [
        *(Job(at.name, speeds.compare_speeds, (at,)) for at in NAMED),
        Job("flip page as it opens", flip_page.compare_page, (0,)),
        Job("policy", inner.compare_policy, ()),
        Job("sizes of instances", purchases.compare_sizes, (LLAMA,)),
        Job("three parts", compare_three_parts, ()),
    ]
    quoted = [
        Job("quoted plan, scenarios", purchases.replanned_scenarios, (QUOTED,)),
        Job("quoted plan, sizes", purchases.compare_stated_sizes, (QUOTED,)),
        Job("quoted guide, sizes", compare_guide_sizes, ()),
    ]
    random = [
        [Job(f"purchase {number}", compare_all, (number,)) for number in range(24)],
        [Job(f"flip page {number}", flip_page.compare_page, (number,)) for number in range(1, 8)],
        [Job(f"speeds {number}", speeds.compare_speeds, (drawn("speeds", number),)) for number in range(200)],
        [Job(f"defaults {number}", speeds.compare_defaults, (drawn("speeds", number),)) for number in range(24)],
        [Job(f"curve {number}", flip_page.compare_curves, (number,)) for number in range(40)],
        [Job(f"picker {number}", inner.compare_retry_after, (number,)) for number in range(30)],
        [Job("picker, prefix blocks", inner.compare_prefix_blocks, ())],
    ]
    first = [jobs[:count] for jobs, count in zip(random, (1, 0, 10, 4, 10, 4, 1), strict=True)]
    rest = [jobs[len(taken) :] for jobs, taken in zip(random, first, strict=True)]
    few = named + _spread(first)
    return few if short else few + quoted + _spread(rest)


def _spread(lists: list[list[Job]]) -> list[Job]:
    """Return the jobs of all lists, so that each part of them has its share of each list."""
    placed = [
        ((number + 0.5) / len(jobs), order, job) for order, jobs in enumerate(lists) for number, job in enumerate(jobs)
    ]
    return [job for _, _, job in sorted(placed, key=lambda one: one[:2])]


def compare_all(number: int) -> Iterator[Comparison]:
    """Compare a purchase, and the variants of its plan whose turn it is."""
    at = drawn("purchase", number)
    turns = (
        (purchases.compare_sizes, number % 2 == 0),
        (purchases.compare_flips, number % 3 == 0),
        (purchases.compare_scenarios, number % 3 == 0),
        (purchases.compare_jumps, number % 3 == 1),
        (purchases.compare_defaults, number % 7 == 2),
    )
    return chain(purchases.compare_purchase(at), *(compare(at) for compare, due in turns if due))


def compare_three_parts() -> Iterator[Comparison]:
    """Compare the guide's vendor with that of a plan that may also sign contracts."""
    question = THREE_PARTS
    return purchases.compare_guide(purchases.plan(question), ask_file("guide", purchases.guide_of(question)))


def compare_guide_sizes() -> Iterator[Comparison]:
    """Compare the vendors of a guide with and without sizes of instances."""
    grid = {"models": "llama-3.3-70b", "prompts": [2048, 12288], "outputs": [400], "loads": [1, 4], "weights": ["fp8"]}
    parts = [{"id": "h200", "rent_usd_per_hour": 2.25}, {"id": "mi355x", "rent_usd_per_hour": 2.70}]
    question = {"start": START, "draws": 200, "grid": grid, "accelerators": parts}
    return purchases.compare_guide_sizes(question)
