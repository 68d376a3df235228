"""What fits, by bytes first and by what engines take second."""

from audits import judged, judged_sentence
from penstock.audit.judgement import Verdict

LLAMA_405B_FP16_GB = 2 * 405.85
MI300X_GB = 192 * 2**30 / 1e9


def test_405b_on_two_mi300x_depends_on_the_format() -> None:
    assert LLAMA_405B_FP16_GB > 2 * MI300X_GB
    by_format = {
        name: judged(f"fits: {{model: llama-3.1-405b, hardware: 2x mi300x, precision: {name}}}").verdict
        for name in ("fp16", "fp8", "int4")
    }
    assert by_format == {"fp16": Verdict.IMPOSSIBLE, "fp8": Verdict.IMPLAUSIBLE, "int4": Verdict.CONFIRMED}
    assert judged("fits: {model: llama-3.1-405b, hardware: 2x mi300x}").verdict is Verdict.PLAUSIBLE


def test_a_70b_does_not_go_on_a_24_gb_card_in_four_bits() -> None:
    found = judged_sentence("llama-3.1-70b int4 on 1x rtx_4090: 700 tok/s")
    assert found.verdict is Verdict.IMPOSSIBLE
    assert 8 * 25.8 / 70.55 < 3
    assert "8 * 25.8 / 70.55" in str(found.workings[1])


def test_a_70b_in_fp16_has_no_speed_on_one_h100() -> None:
    found = judged_sentence("llama-3.1-70b fp16 on 1x h100: 2800 tok/s")
    assert found.verdict is Verdict.IMPOSSIBLE
    assert "141.1" in found.reason


def test_what_fits_is_confirmed_and_its_denial_contradicted() -> None:
    assert judged_sentence("llama-3.1-70b fp16 on 1x mi300x: fits").verdict is Verdict.CONFIRMED
    assert judged_sentence("llama-3.1-70b fp16 on 1x mi300x: does not fit").verdict is Verdict.CONTRADICTED
    assert judged_sentence("llama-3.1-70b fp16 on 1x h100: does not fit").verdict is Verdict.CONFIRMED


def test_weights_and_cache_follow_from_the_config() -> None:
    assert (
        judged("size: {model: llama-3.1-70b, of: weights, precision: fp16, figure: ~140 GB}").verdict
        is Verdict.CONFIRMED
    )
    cache = judged("size: {model: llama-3.1-70b, of: cache, context: 32k, figure: ~20 GB}")
    # 80 layers, 8 heads of 128, keys and values, two bytes each: 10.7 GB.
    assert 80 * 8 * 128 * 2 * 2 * 32768 / 1e9 < 11
    assert cache.verdict is Verdict.CONTRADICTED


def test_a_figure_in_gb_may_mean_gib() -> None:
    # 141.1 x 10^9 bytes are 131.4 GiB.
    assert abs(2 * 70.55 * 1e9 / 2**30 - 131.4) < 0.05
    found = judged("size: {model: llama-3.1-70b, of: weights, precision: fp16, figure: 131.4 GB}")
    assert found.verdict is Verdict.CONFIRMED
    assert found.reason.endswith(", or 131.4 GiB")
    assert judged("size: {model: llama-3.1-70b, of: weights, precision: fp16, figure: 151.5 GB}").verdict is not (
        Verdict.CONFIRMED
    )


def test_the_fewest_devices_are_counted_format_by_format() -> None:
    # 811.7 GB over 85.9 fill nine and a half; four bits fit on three that form a pipeline.
    fp16 = judged("fits: {model: llama-3.1-405b, hardware: h100, precision: fp16, fewest: 3}")
    assert fp16.verdict is Verdict.IMPOSSIBLE
    assert judged("fits: {model: llama-3.1-405b, hardware: h100, fewest: 3}").verdict is Verdict.PLAUSIBLE
    assert (
        judged("fits: {model: llama-3.1-405b, hardware: h100, precision: fp8, fewest: 2}").verdict is Verdict.IMPOSSIBLE
    )
    assert (
        judged("fits: {model: llama-3.1-70b, hardware: h100, precision: fp16, fewest: 2}").verdict is Verdict.CONFIRMED
    )


def test_what_engines_split_evenly_is_as_true_as_what_just_holds() -> None:
    """405B in FP8 just fits on 6 H100 and is bought on 8; DeepSeek-R1 on 11, and on 16: none of them is a lie."""
    for model, counts in (("llama-3.1-405b", (6, 8)), ("deepseek-r1", (11, 16))):
        for count in counts:
            said = judged(f"fits: {{model: {model}, hardware: h100, precision: fp8, fewest: {count}}}")
            assert said.verdict is Verdict.PLAUSIBLE
            assert "if engines split it evenly" in said.reason
    assert (
        judged("fits: {model: llama-3.1-405b, hardware: h100, precision: fp8, fewest: 12}").verdict
        is Verdict.CONTRADICTED
    )


def test_what_weights_leave_is_of_the_box_or_of_the_bytes() -> None:
    claim = "size: {{model: llama-3.1-70b, of: left, precision: fp8, hardware: 1x h100, figure: {} GB}}"
    assert judged(claim.format(7.3)).verdict is Verdict.CONFIRMED
    assert judged(claim.format(13.2)).verdict is Verdict.PLAUSIBLE
    assert judged(claim.format(30)).verdict is Verdict.CONTRADICTED
