"""The `fit` command."""

from penstock.api.options.fit_options import FitOptions
from penstock.cli.console import Watch, show
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson


@with_flags(FitOptions)
def fit_command(given: Given, *, as_json: AsJson = False) -> None:
    """Does it fit, and what is left for the KV cache?

    Prints one row per accelerator: weight bytes per device, memory that the engine reserves, KV tokens with their
    P10-P90, concurrent requests of the --context length, and the minimum device count (tensor parallel inside a node,
    then whole nodes in a pipeline). `tight`: the model fits if the engine reserves its median amount, but not at its
    P90. `flags`: the model fits only with the engine flags printed. Exits 1 unless the model fits on every
    accelerator.

    Examples:

    - `penstock fit llama-3.1-70b --on mi300x,h100,h200,b200`
    - `penstock fit ./DeepSeek-R1 --on mi355x:8,b200:8 --context 128k --kv fp8`
    - `penstock fit hf:Qwen/Qwen3-235B-A22B --on h200:4 --precision fp8 --json`
    """
    from penstock.api.fit import fit

    with Watch("reading the checkpoint"):
        answer = fit(**given)
    show(answer, as_json=as_json)
