"""Says shipped rows and offers as sentences, at their own load, and false by a factor."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.audit.claim import Verdict
from penstock.audit.judge import judge
from penstock.audit.reader import read_sentence
from penstock.catalog import load_measurements, load_mlperf_results, load_prices, priced_ids

TYPED = Path(__file__).parent / "unit" / "audit" / "typed"
SHORT = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300", "a100_80gb_sxm": "a100"}
KINDS = {"rent_on_demand": "on demand", "rent_spot": "on the spot market", "rent_contract": "under contract"}


def lines(name: str) -> list[str]:
    return (TYPED / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def verdicts(sentence: str) -> list[Verdict]:
    return [judge(claim).verdict for claim in read_sentence(sentence)]


@dataclass(frozen=True)
class Saying:
    """A row as a sentence with a gap for its rate."""

    stated: str
    unstated: str
    """Without the weight format."""
    rate: float

    def __call__(self, factor: float = 1.0, *, stated: bool = True) -> str:
        return f"{self.stated if stated else self.unstated}: {self.rate * factor:.6g} output tok/s"


def rows(step: int = 1, offset: int = 0) -> list[Saying]:
    """Every shipped row with a rate, MLPerf included."""
    return list(_rows())[offset::step]


def _rows() -> Iterator[Saying]:
    for use in ("evidence", "queued", "held_out"):
        for row in load_measurements(use=use):
            rate = row.output_tokens_per_s
            if rate is None and row.concurrency and row.tpot_s:
                rate = row.concurrency * row.output_tokens / ((row.ttft_s or 0.0) + row.output_tokens * row.tpot_s)
            if rate:
                users = f" at {max(1, round(row.concurrency))} users" if row.concurrency else ""
                lengths = f" in {max(1, round(row.input_tokens))}/{max(1, round(row.output_tokens))}"
                drafts = " with mtp" if row.drafted else " without drafts"
                apart = " disaggregated" if row.scenario == "disaggregated" else ""
                part = SHORT.get(row.accelerator, row.accelerator)
                load = f" on {row.devices}x {part} with {row.engine}{lengths}{users}{drafts}{apart}"
                yield Saying(f"{row.model} {row.weights}{load}", f"{row.model}{load}", rate)
    for result in load_mlperf_results():
        part = SHORT.get(result.accelerator, result.accelerator)
        load = f" on {result.devices}x {part} in MLPerf"
        yield Saying(f"{result.model} {result.weights}{load}", f"{result.model}{load}", result.output_tokens_per_s)


def prices(*, told: bool) -> list[tuple[str, float]]:
    """Every usable hourly offer of a cloud: a sentence with a gap, and dollars. `told` names the provider and kind."""
    found = []
    for ident in priced_ids():
        for price in load_prices(ident):
            if price.usable and price.confidence != "low" and price.kind in KINDS:
                whose = f"On {price.provider}, the" if told else "The"
                kind = f" {KINDS[price.kind]}" if told else ""
                part = SHORT.get(ident, ident)
                found.append((f"{whose} {part} rents for ${{:.2f}} per hour{kind}.", price.usd_per_device))
    return found
