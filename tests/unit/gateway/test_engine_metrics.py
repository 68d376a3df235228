"""Engine metrics pages are parsed, and no page makes the parser fail."""

import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from gateway_fakes import state
from penstock.emulator.metrics_page import sglang_page, vllm_page
from penstock.gateway.telemetry.engine_metrics import read_page


def test_a_vllm_page_of_the_real_engine_is_read(shared: Path) -> None:
    report = read_page((shared / "research" / "vllm-metrics.txt").read_bytes())
    assert report is not None
    assert (report.running, report.waiting) == (0, 0)
    assert report.kv_tokens == 524_288
    assert report.ttft == (226.43099927902222, 54.0)
    assert report.itl == (302.72075650299894, 5734.0)
    assert report.output == (5788.0, 54.0)
    assert report.prompt_tokens == 32_243


def test_an_sglang_page_of_the_real_engine_is_read(shared: Path) -> None:
    report = read_page((shared / "research" / "samples" / "sglang-0.5.23-metrics.txt").read_bytes())
    assert report is not None
    assert report.kv_tokens == 8192
    assert report.ttft == (0.34471600362121535, 11.0)
    assert report.itl[1] == 112
    assert report.output == (552.0, 11.0)


def test_emulated_pages_are_parsed_completely() -> None:
    for page in (vllm_page(state()), sglang_page(state())):
        report = read_page(page)
        assert report is not None
        assert (report.running, report.waiting) == (3, 2)
        assert report.kv_tokens == 200 * 16
        assert report.kv_used_tokens == 50 * 16
        assert report.ttft == (4 * 0.5, 4.0)
        assert report.itl[1] == 100


def test_ranks_of_one_engine_are_added() -> None:
    page = b'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_running{engine="1"} 4.0\n'
    page += b'vllm:num_requests_waiting{engine="0"} 0.0\nvllm:num_requests_waiting{engine="1"} 1.0\n'
    report = read_page(page)
    assert report is not None
    assert (report.running, report.waiting) == (7, 1)


def ranks(page: bytes, label: bytes, count: int) -> bytes:
    """A page as several ranks write it together: every line once for each."""
    shown = []
    for line in page.splitlines():
        named = label + b'="0"' in line
        shown += [line.replace(label + b'="0"', label + b'="%d"' % rank) for rank in range(count if named else 1)]
    return b"\n".join(shown) + b"\n"


def test_data_parallel_ranks_of_vllm_are_added_and_their_caches_counted_once() -> None:
    """Each rank's line says how many tokens it has itself, and how many blocks all of them have together."""
    page = ranks(vllm_page(state(blocks=200)), b"engine", 4)
    together = page.replace(b'num_gpu_blocks="200"', b'num_gpu_blocks="800"')
    older = re.sub(rb'kv_cache_size_tokens="\d+",', b"", together)
    assert older != together != page
    for shown in (together, older):
        report = read_page(shown)
        assert report is not None
        assert (report.running, report.waiting) == (4 * 3, 4 * 2)
        assert report.kv_tokens == 4 * 200 * 16
        assert report.kv_used_tokens == 4 * 50 * 16
        assert report.ttft == (4 * 4 * 0.5, 4 * 4.0)
        assert report.prompt_tokens == 4 * 4000


def test_data_parallel_ranks_of_sglang_are_added_and_tensor_parallel_ones_are_not() -> None:
    page = ranks(sglang_page(state()), b"tp_rank", 2)
    one = read_page(page)
    parallel = page.replace(b'pp_rank="0"', b'dp_rank="0",pp_rank="0"')
    all_four = read_page(ranks(parallel, b"dp_rank", 4))
    assert one is not None
    assert all_four is not None
    assert (one.running, one.waiting, one.kv_tokens, one.kv_used_tokens) == (3, 2, 200 * 16, 50 * 16)
    assert (all_four.running, all_four.waiting) == (4 * 3, 4 * 2)
    assert (all_four.kv_tokens, all_four.kv_used_tokens) == (4 * 200 * 16, 4 * 50 * 16)
    assert all_four.ttft == one.ttft == (4 * 0.5, 4.0)  # one process counts these for all ranks


def test_implausible_values_are_ignored() -> None:
    for value in (b"NaN", b"-1", b"+Inf", b"1e300", b"", b"x"):
        page = b"vllm:num_requests_running{} " + value + b"\nvllm:num_requests_waiting{} 0.0\n"
        assert read_page(page) is None


@given(st.binary(max_size=400))
@example(b"vllm:num_requests_running")
@example(b"vllm:num_requests_running{\nvllm:num_requests_waiting} 1")
@example(b'vllm:cache_config_info{num_gpu_blocks="9999999999999999999999"} 1.0')
def test_no_page_makes_the_reader_fail(noise: bytes) -> None:
    read_page(noise)
    page = vllm_page(state())
    middle = len(page) // 2
    report = read_page(page[:middle] + noise + page[middle:])
    assert report is None or report.running >= 0
