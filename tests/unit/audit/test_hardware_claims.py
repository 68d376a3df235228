"""What data sheets say: dense and sparse, GB and GiB, one device and a node."""

import pytest

from audits import judged, judged_sentence
from penstock.audit.judgement import Verdict


def lines(judgement: object) -> str:
    return "\n".join(str(line) for line in judgement.workings)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("quantity", "figure", "dense"), [("fp8", "3958 TFLOPS", 1979), ("fp16", "1979 TFLOPS", 989)])
def test_the_sparse_rates_of_h100_are_not_what_it_computes(quantity: str, figure: str, dense: int) -> None:
    found = judged(f"spec: {{accelerator: h100, quantity: {quantity}, figure: {figure}}}")
    assert found.verdict is Verdict.CONTRADICTED
    assert "2:4 sparsity" in found.reason
    assert f"{dense:,}" in found.reason
    assert found.true_if is not None


def test_a_sparse_rate_that_is_called_sparse_is_right() -> None:
    found = judged("spec: {accelerator: h100, quantity: fp8, figure: 3958 TFLOPS, basis: sparse}")
    assert found.verdict is Verdict.CONFIRMED


def test_a_rate_said_to_be_delivered_may_not_exceed_the_dense_peak() -> None:
    assert (
        judged("spec: {accelerator: mi300x, quantity: fp8, figure: 1840 TFLOPS, sustained: true}").verdict
        is Verdict.PLAUSIBLE
    )
    assert (
        judged("spec: {accelerator: mi300x, quantity: fp8, figure: 3000 TFLOPS, sustained: true}").verdict
        is Verdict.IMPOSSIBLE
    )


def test_one_and_a_half_times_the_memory_of_h100_is_two_point_four() -> None:
    found = judged("ratio: {accelerator: mi300x, over: h100, quantity: memory, figure: 1.5x}")
    assert found.verdict is Verdict.CONTRADICTED
    assert "192 / 80 = 2.4" in lines(found)
    assert (
        judged("ratio: {accelerator: mi300x, over: h100, quantity: memory, figure: 2.4x}").verdict is Verdict.CONFIRMED
    )


def test_a_ratio_of_one_dense_and_one_sparse_rate_is_named_as_such() -> None:
    found = judged("ratio: {accelerator: h100, over: mi300x, quantity: fp16, figure: 1.5x}")
    assert found.verdict is Verdict.CONTRADICTED
    assert "2:4 sparsity of NVIDIA H100 SXM5 80GB divided by the dense" in found.reason
    assert f"{989.4 / 1307.4:.3f}"[:4] in lines(found)


def test_mi325x_has_six_terabytes_a_second_and_a_thousand_watts() -> None:
    assert judged("spec: {accelerator: mi325x, quantity: bandwidth, figure: 5.3 TB/s}").verdict is Verdict.CONTRADICTED
    assert judged("spec: {accelerator: mi325x, quantity: tdp, figure: 750 W}").verdict is Verdict.CONTRADICTED
    assert judged("spec: {accelerator: mi325x, quantity: bandwidth, figure: 6 TB/s}").verdict is Verdict.CONFIRMED


def test_eight_terabytes_a_second_are_one_mi350x_and_not_a_node_of_them() -> None:
    found = judged("spec: {accelerator: mi350x, quantity: bandwidth, figure: ~8 TB/s, scope: node}")
    assert found.verdict is Verdict.CONTRADICTED
    assert "8 / 64" in lines(found)
    assert "one device" in (found.true_if or "")


def test_gb_and_gib_are_both_read() -> None:
    assert judged("spec: {accelerator: b200, quantity: memory, figure: 180 GB}").verdict is Verdict.CONFIRMED
    assert judged("spec: {accelerator: b200, quantity: memory, figure: 193 GB}").verdict is Verdict.CONFIRMED
    assert judged("spec: {accelerator: b200, quantity: memory, figure: 288 GB}").verdict is Verdict.CONTRADICTED


def test_operations_times_bits_put_mi300x_above_the_export_threshold() -> None:
    found = judged("limit: {accelerator: mi300x, rule: 3a090-2023, side: below}")
    assert found.verdict is Verdict.CONTRADICTED
    assert "2614.9 * 8 = 20,919" in lines(found)
    assert judged("limit: {accelerator: h20, rule: 3a090-2023, side: below}").verdict is Verdict.CONFIRMED


def test_cdna_executes_sixty_four_threads_together() -> None:
    assert judged("spec: {accelerator: mi300x, quantity: wavefront, figure: 32}").verdict is Verdict.CONTRADICTED
    assert judged_sentence("mi300x wavefront: 64").verdict is Verdict.CONFIRMED


def test_a_part_that_was_not_there_yet_is_said_to_be_so() -> None:
    found = judged("spec: {accelerator: mi325x, quantity: memory, figure: 256 GB}", said_on="2024-02-15")
    assert "launched in 2024-10" in found.reason
