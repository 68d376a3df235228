"""The `predict` command."""

from penstock.api.options.predict_options import SweepOptions
from penstock.cli.console import Watch, show
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson


@with_flags(SweepOptions)
def predict_command(given: Given, *, as_json: AsJson = False) -> None:
    """How fast will the model run?

    Prints throughput, time per output token, time to first token, rent and joules per output token. Speeds have a
    P10-P90 interval from errors on held-out measurements. --explain shows the evidence: the time of a step by
    component, power, the sources of rents, and the nearest public measurements. Exits 1 unless the model fits on every
    accelerator with room for an eighth of the requests at once. An accelerator whose speed is undetermined is named
    below the others. With several numbers of requests in flight, prints the curve of throughput per device over speed
    per user.

    Examples:

    - `penstock predict deepseek-r1 --on mi355x:8,b200:8 --in 8192 --out 1024 --concurrency 64`
    - `penstock predict llama-3.1-70b --on mi300x:1,h100:4 --in 4096 --out 512 --concurrency 64 --engine vllm --json`
    - `penstock predict llama-3.3-70b --on h200:2,mi355x --precision fp8 --in 2k --out 400 --concurrency 1,4,16,64`
    - `penstock predict llama-3.3-70b --on mi355x --precision fp8 --explain  # where the time of a step goes`
    - `penstock predict deepseek-r1 --on mi355x:8 --mtp  # with the model's own draft layers`
    - `penstock predict deepseek-r1 --on gb200:8 --ep --replicas 4 --prefill 1 --prefill-split dp8,ep --concurrency 128`
    - `penstock predict ./my-model --on mi300x --roofline  # an upper bound instead of an estimate`
    """
    from penstock.api.sweep import predict_loads

    with Watch("predicting"):
        answer = predict_loads(**given)
    show(answer, as_json=as_json)
