"""Compares the routes of a guide with one vendor for everything, on a mixed trace with the lengths of all routes.

    python tools/compare_routes.py llama-3.1-8b --loads 1,4,16

Each fleet serves every prompt length of the guide at the same load. Costs are those of the guide, all in. Requests are
simulated with Poisson arrivals at the sum of the loads, and each has the SLO of its route.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.api.guide import guide
from penstock.api.simulate_fleet import simulate_fleet
from penstock.fleet.fleet_file import write_fleet
from penstock.guide.guide_result import GuideResult
from penstock.guide.guide_routes import guide_fleet

POLICIES = "penstock,round-robin"


def of_vendor(result: GuideResult, vendor: str) -> GuideResult:
    """Return the guide with the fleets of one vendor only."""
    cells = (
        replace(cell, fleets=tuple(fleet for fleet in cell.fleets if fleet.vendor == vendor)) for cell in result.cells
    )
    return replace(result, cells=tuple(cells))


def print_row(name: str, result: GuideResult, load: float, requests: int) -> None:
    """Print the cost of a fleet and the share of requests in time under each policy."""
    cells = [cell for cell in result.cells if cell.requests_per_s == load]
    if any(cell.winner is None for cell in cells):
        print(f"| {load:g} | {name} | - | does not serve every prompt | |", flush=True)
        return
    usd = sum(cell.winner.cost_usd for cell in cells if cell.winner is not None)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(write_fleet(guide_fleet(result, load)), encoding="utf-8")
        answer = simulate_fleet(path, policy=POLICIES, requests=requests)
    kinds = sorted({pool.accelerator for cell in cells if cell.winner is not None for pool in cell.winner.pools})
    met = " | ".join(f"{run.worst_met_fraction:.1%}" for run in answer.runs)
    print(f"| {load:g} | {name} | ${usd / 1000:,.0f}k | {', '.join(kinds)} | {met} |", flush=True)


def main() -> int:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="llama-3.1-8b", help="a model or a guide file")
    parser.add_argument("--loads", default="1,4", help="loads of the guide that are compared")
    parser.add_argument("--requests", type=int, default=4000)
    given = parser.parse_args()
    result = guide(given.what).result
    print("| requests/s per prompt | fleet | cost | accelerators | in time (worst route), penstock | round robin |")
    print("|---|---|---|---|---|---|")
    for load in map(float, given.loads.split(",")):
        print_row("routes of the guide", result, load, given.requests)
        for vendor in result.vendors:
            print_row(f"{vendor} for everything", of_vendor(result, vendor), load, given.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
