"""What pages of vendors and resellers say, each with the verdict a careful buyer reaches."""

import pytest

from audits import judged
from penstock.audit.judgement import Verdict

MI325X = "model: llama-3.1-405b, precision: fp8, hardware: 8x mi325x, concurrency: 100"
ORACLE = "model: llama-3.1-405b, precision: fp8, hardware: 8x mi300x, engine: vllm, concurrency: 64"
LLAMA = "model: llama-2-70b, precision: fp16, concurrency: 1"
R1 = "model: deepseek-r1, precision: nvfp4, hardware: 8x b200, concurrency: 1"
CLAIMS = {
    # docs.vultr.com, Llama 3.1 405B on MI325X: an FP8 model of 405B parameters does not weigh 210 GB.
    "size: {model: llama-3.1-405b, of: weights, precision: fp8, figure: ~210 GB}": Verdict.CONTRADICTED,
    # The same page counts prompt tokens into its rate; its validation page does not.
    f"speed: {{{MI325X}, figure: 6802 tok/s}}": Verdict.IMPLAUSIBLE,
    f"speed: {{{MI325X}, figure: 1291 tok/s}}": Verdict.PLAUSIBLE,
    # blogs.oracle.com, 10 October 2024: measured, batch 64 of 128/128.
    f"speed: {{{ORACLE}, input: 128, output: 128, figure: 1184 tok/s}}": Verdict.PLAUSIBLE,
    # codesota.com and saulelectric.com call sparse rates dense.
    "spec: {accelerator: mi300x, quantity: fp16, figure: 2615 TFLOPS, basis: dense}": Verdict.CONTRADICTED,
    "spec: {accelerator: h200, quantity: fp8, figure: 3.94 PFLOPS, basis: dense}": Verdict.CONTRADICTED,
    # kontronn.com gives one MI350 the rate of eight.
    "spec: {accelerator: mi350x, quantity: fp8, figure: 37 PFLOPS}": Verdict.CONTRADICTED,
    # aiminingco.com on H200.
    "ratio: {accelerator: h200, over: h100, quantity: bandwidth, figure: 1.43x}": Verdict.CONFIRMED,
    "ratio: {accelerator: h200, over: h100, quantity: memory, figure: 1.76x}": Verdict.CONFIRMED,
    # NVIDIA: 250 tok/s per user with draft layers, which a claim that excludes them cannot have.
    f"speed: {{{R1}, figure: over 250 tok/s/user}}": Verdict.PLAUSIBLE,
    f"speed: {{{R1}, drafts: false, figure: over 250 tok/s/user}}": Verdict.IMPLAUSIBLE,
    # alpha-one-index.github.io: a 70B in FP16 for one request at 155 tok/s on H200, and on one H100 at all.
    f"speed: {{{LLAMA}, hardware: 1x h200, figure: 155 tok/s}}": Verdict.IMPOSSIBLE,
    f"speed: {{{LLAMA}, hardware: 1x h100, figure: ~85 tok/s}}": Verdict.IMPOSSIBLE,
    'follows: {inputs: {rate: 155, usd: 3.29}, formula: rate * 3600 / usd, figure: "~169,600"}': Verdict.CONFIRMED,
    # runpod.io, and a price nobody asks.
    "price: {accelerator: mi300x, paid_for: rent, figure: $3.49 /h}": Verdict.CONFIRMED,
    "price: {accelerator: mi300x, paid_for: rent, figure: $0.20 /h}": Verdict.IMPLAUSIBLE,
}


@pytest.mark.parametrize(("claim", "verdict"), CLAIMS.items())
def test_a_page_gets_the_verdict_it_deserves(claim: str, verdict: Verdict) -> None:
    found = judged(claim, said_on="2026-03-17")
    assert found.verdict is verdict, found.reason


def test_the_bound_of_one_request_is_its_weights_over_the_bandwidth() -> None:
    found = judged("speed: {model: llama-2-70b, precision: fp16, hardware: 1x h200, concurrency: 1, figure: 155 tok/s}")
    tokens_a_step, weights_gb, tb_per_s = 4, 137.43, 4.8
    assert tokens_a_step * 1000 / (weights_gb / tb_per_s) < 155 * 0.98
    assert "137.43 / 4.8" in str(found.workings[0])
