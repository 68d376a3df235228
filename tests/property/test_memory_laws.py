"""What must hold for every model, accelerator and split; each test's name is the law."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import accelerator_with, deployment, model
from penstock.catalog import accelerator_ids, model_ids
from penstock.fleet import Parallelism
from penstock.model import CacheDtype, Part
from penstock.performance import MemoryFit, fit
from penstock.performance.memory.sharding import device_bytes, stage_of_layers
from penstock.units import GIB

models = st.sampled_from(model_ids())
accelerators = st.sampled_from([ident for ident in accelerator_ids() if not ident.startswith("tpu")])
ranks = st.sampled_from([1, 2, 4, 8])
contexts = st.integers(min_value=16, max_value=131_072)
caches = st.sampled_from([None, CacheDtype.FP8, CacheDtype.BF16])
engines = st.sampled_from([("vllm", "0.31"), ("vllm", "0.11"), ("vllm", "0.22"), ("sglang", "0.5.18")])
law = settings(max_examples=150, deadline=None)


def placed(name: str, accelerator: str, tp: int, engine: tuple[str, str] = ("vllm", "0.31")) -> MemoryFit:
    kind, version = engine
    chosen = deployment(name, accelerator, tp=tp, engine="sglang" if kind == "sglang" else "vllm", version=version)
    return fit(chosen, 8192)


@law
@given(name=models, accelerator=accelerators, tp=ranks, engine=engines)
def test_budget_parts_sum_to_the_device_or_say_by_how_much_they_exceed_it(
    name: str, accelerator: str, tp: int, engine: tuple[str, str]
) -> None:
    budget = placed(name, accelerator, tp, engine).budget
    if budget is None:
        return
    held = budget.weight_bytes + budget.activation_bytes + budget.runtime_bytes + budget.graph_bytes
    if held + budget.kv_bytes <= budget.device_bytes:
        assert budget.total_bytes == budget.device_bytes
    else:
        assert budget.shortfall_bytes >= held + budget.kv_bytes - budget.device_bytes > 0
    assert (budget.kv_bytes > 0) or budget.shortfall_bytes >= 0
    assert min(budget.activation_bytes, budget.runtime_bytes, budget.graph_bytes, budget.unused_bytes) >= 0


@law
@given(name=models, tp=ranks, context=contexts, memory_gib=st.floats(8, 400), more_gib=st.floats(0, 200))
def test_more_memory_never_holds_fewer_tokens(
    name: str, tp: int, context: int, memory_gib: float, more_gib: float
) -> None:
    base = deployment(name, "h100", tp=tp)
    small = fit(replace(base, accelerator=accelerator_with("h100", int(memory_gib * GIB))), context)
    large = fit(replace(base, accelerator=accelerator_with("h100", int((memory_gib + more_gib) * GIB))), context)
    if small.capacity is None or large.capacity is None:
        return
    assert large.capacity.tokens >= small.capacity.tokens
    assert (large.capacity.longest_context_tokens or 0) >= (small.capacity.longest_context_tokens or 0)
    assert large.fits or not small.fits


@law
@given(name=models, tp=st.sampled_from([1, 2, 4]), ep=st.booleans())
def test_more_tensor_parallelism_never_increases_any_weight_on_a_device(name: str, tp: int, ep: bool) -> None:  # noqa: FBT001
    narrow = deployment(name, "h100", tp=tp, ep=ep)
    wide = deployment(name, "h100", tp=2 * tp, ep=ep)
    for weight in narrow.model.weights:
        assert device_bytes(weight, wide) <= device_bytes(weight, narrow), weight.module


@law
@given(name=models, tp=ranks)
def test_no_weight_is_lost_by_splitting_it(name: str, tp: int) -> None:
    spread = deployment(name, "h100", tp=tp)
    for weight in spread.model.weights:
        assert device_bytes(weight, spread) * tp >= weight.stored_bytes * 0.999, weight.module


@law
@given(name=models, accelerator=accelerators, tp=ranks, context=contexts, more=st.integers(0, 131_072), kv=caches)
def test_more_context_never_raises_concurrency(
    name: str, accelerator: str, tp: int, context: int, more: int, kv: CacheDtype | None
) -> None:
    chosen = deployment(name, accelerator, tp=tp, kv=kv)
    short, long = fit(chosen, context).capacity, fit(chosen, context + more).capacity
    if short is None or long is None:
        return
    assert long.concurrent_requests is not None
    assert short.concurrent_requests is not None
    assert long.concurrent_requests <= short.concurrent_requests
    assert long.cached_requests is None or long.concurrent_requests <= long.cached_requests
    assert long.request_bytes >= short.request_bytes
    assert long.longest_context_tokens == short.longest_context_tokens


@law
@given(name=models, accelerator=accelerators, tp=ranks, context=contexts, engine=engines)
def test_the_range_holds_the_median_and_the_verdict_agrees_with_the_numbers(
    name: str, accelerator: str, tp: int, context: int, engine: tuple[str, str]
) -> None:
    kind, version = engine
    chosen = deployment(name, accelerator, tp=tp, engine="sglang" if kind == "sglang" else "vllm", version=version)
    result = fit(chosen, context)
    if result.capacity is None or result.budget is None:
        assert not result.fits
        return
    assert result.capacity.low_tokens <= result.capacity.tokens <= result.capacity.high_tokens
    if result.fits:
        assert result.capacity.concurrent_requests != 0
        assert result.capacity.longest_context_tokens is None or result.capacity.longest_context_tokens >= context
    else:
        assert result.obstacle is not None
        assert result.obstacle.reason


@law
@given(name=models, accelerator=accelerators, context=contexts)
def test_an_fp8_cache_never_holds_fewer_tokens_than_a_16_bit_one(name: str, accelerator: str, context: int) -> None:
    wide = fit(deployment(name, accelerator, tp=8, kv=CacheDtype.BF16), context).capacity
    narrow = fit(deployment(name, accelerator, tp=8, kv=CacheDtype.FP8), context).capacity
    if wide is not None and narrow is not None:
        assert narrow.tokens >= wide.tokens


@law
@given(layers=st.integers(1, 200), pp=st.integers(1, 16))
def test_every_layer_has_one_stage_and_stages_differ_by_at_most_one_layer(layers: int, pp: int) -> None:
    stages = stage_of_layers(layers, pp)
    assert len(stages) == layers
    assert list(stages) == sorted(stages)
    counts = [stages.count(stage) for stage in range(pp)]
    assert max(counts) - min(counts) <= 1


@law
@given(name=models, pp=st.sampled_from([1, 2, 3, 4]))
def test_a_pipeline_holds_every_weight_at_least_once(name: str, pp: int) -> None:
    from penstock.performance.memory.sharding import weight_bytes_by_part  # noqa: PLC0415

    spread = deployment(name, "h100", pp=pp)
    total = sum(sum(weight_bytes_by_part(spread, stage).values()) for stage in range(pp))
    stored = sum(device_bytes(w, spread) for w in spread.model.weights if w.part is not Part.MTP)
    assert total >= stored


@law
@given(name=models)
def test_active_parameters_never_exceed_the_total(name: str) -> None:
    spec = model(name)
    assert 0 < spec.active_params <= sum(weight.params for weight in spec.weights)
    assert Parallelism().devices == 1
