"""A fleet of two models that share devices."""

from penstock.fleet.deployment import Parallelism
from penstock.fleet.pools import Fleet, Pool, PoolEngine, Route, SharedDevice
from penstock.workload.slo import parse_slo

MODELS = ("qwen3-8b", "llama-3.1-8b")


def shared_fleet(kv_bytes: int, replicas: int = 1) -> Fleet:
    """Return two models of 15 GiB that share each H100, with a KV cache each."""
    pools = tuple(
        Pool(
            name=model,
            model=model,
            weights="bf16",
            kv="bf16",
            accelerator="h100_sxm",
            vendor="nvidia",
            site="here",
            replicas=replicas,
            split=Parallelism(),
            engine=PoolEngine(
                name="vllm", version="0.32.0", settings={"kv_cache_memory_bytes": kv_bytes, "max_model_len": 4096}
            ),
        )
        for model in MODELS
    )
    return Fleet(
        name="two models",
        nodes=(),
        pools=pools,
        routes=tuple(
            Route(
                workload=model,
                input_tokens=512,
                output_tokens=64,
                slo=parse_slo("ttft=2s,tpot=60ms"),
                peak_requests_per_s=0.5,
                weights={model: 1.0},
            )
            for model in MODELS
        ),
        shared_devices=tuple(SharedDevice(name=f"gpu {number}", pools=MODELS) for number in range(replicas)),
    )
