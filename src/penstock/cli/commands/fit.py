"""The `fit` command."""

from penstock.api.options.fit_options import FitOptions
from penstock.cli.console import Watch, show
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson


@with_flags(FitOptions)
def fit_command(given: Given, *, as_json: AsJson = False) -> None:
    """Does the model fit, and how much memory is left for the KV cache?

    Prints one row per accelerator: weight bytes per device, memory that the engine reserves, KV tokens with their
    P10-P90, concurrent requests of --context tokens, and the minimum number of devices. Devices are counted as tensor
    parallel ranks inside a node, then as whole nodes in a pipeline. The result `tight` means that the model fits with
    the median engine reserve, but not with its P90. For models with sliding windows, vLLM logs another number of tokens
    at start-up, which is printed below the table. The engine has its default settings, or those that you state; other
    settings that would fit are named. Exits 1 unless the model fits on every accelerator.

    Several models, with commas between them, share a device: prints which of them fit together, the KV cache left for
    each, and the seconds to wake or to start each. Exits 1 unless one device of every accelerator holds them all.

    Examples:

    - `penstock fit llama-3.1-70b --on mi300x,h100,h200,b200`
    - `penstock fit ./DeepSeek-R1 --on mi355x:8,b200:8 --context 128k --kv fp8`
    - `penstock fit hf:Qwen/Qwen3-235B-A22B --on h200:4 --precision fp8 --json`
    - `penstock fit llama-3.1-8b,qwen3-14b,gpt-oss-20b --on mi355x,h100  # which of them share a device`
    """
    from penstock.api.fit import fit
    from penstock.api.fit_together import fit_together, names_several

    with Watch("reading the checkpoint"):
        answer = fit_together(**given) if names_several(given["model"]) else fit(**given)
    show(answer, as_json=as_json)
