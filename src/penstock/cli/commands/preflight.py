"""The `preflight` command."""

from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.api.options.preflight_options import PreflightOptions
from penstock.cli.commands.learn import learn_command, packs_command
from penstock.cli.declared_commands import CommandWithActions, declared_command
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson
from penstock.errors import UsageError


@with_flags(PreflightOptions)
def check_command(
    given: Given,
    *,
    probe: Annotated[
        str | None,
        Flag(
            name="--probe",
            help="Query the running OpenAI-compatible server at this base URL, instead of checking a checkpoint.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        Flag(
            name="--reference", help="With --probe: compare with the answers in this file, written by --save-reference."
        ),
    ] = None,
    against: Annotated[
        str | None,
        Flag(
            name="--against",
            help="With --probe: compare with a second server, such as one on the other vendor's accelerators.",
        ),
    ] = None,
    save_reference: Annotated[
        str | None, Flag(name="--save-reference", help="With --probe: write the server's answers to this file.")
    ] = None,
    served_model: Annotated[
        str | None,
        Flag(
            name="--served-model",
            help="With --probe: name of the model to query. Default: the first model that the server lists.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Will this checkpoint run correctly on this accelerator, and with which flags?

    Reads the config and safetensors headers, and the weights only with --scan. Findings are grouped by effect:
    silent-wrong (the answers are wrong without an error), blocker (the engine does not start, or crashes), slow, info.
    A rule that cannot be decided is shown with the missing information. The answer is the verdict, the findings with
    their fixes, and one command; --explain shows the rest. Exits 1 if a finding is silent-wrong or a blocker,
    and 4 if too little was read to judge. With --probe, queries a running server and compares its log-probabilities
    with a reference.

    Examples:

    - `penstock preflight deepseek-r1 --on mi300x:8`
    - `penstock preflight deepseek-r1 --on mi300x:8 --explain  # kernels, sources, the reason for each flag`
    - `penstock preflight ./my-checkpoint --on mi325x,h200 --engine vllm --engine-version 0.24.0 --kv fp8`
    - `penstock preflight gpt-oss-120b --on mi300x --command "vllm serve openai/gpt-oss-120b --swap-space 4"`
    - `penstock preflight gpt-oss-120b --matrix  # every accelerator, vLLM and SGLang`
    - `penstock preflight deepseek-r1 --on mi355x:8 --engine vllm-atom`
    - `penstock preflight --fleet fleet.yaml --strict  # every pool of a plan, as a gate`
    - `penstock preflight learn vllm==0.33.0  # read a release that this version does not know`
    - `penstock preflight packs  # the releases and rules that are known`
    - `penstock preflight --probe http://127.0.0.1:8000 --save-reference h100.json`, then on the other vendor
      `penstock preflight --probe http://127.0.0.1:8001 --reference h100.json`
    """
    if probe is not None:
        from penstock.cli.commands.probe import run_probe

        run_probe(
            probe, reference=reference, against=against, save=save_reference, served=served_model, as_json=as_json
        )
        return
    for name, value in (("--reference", reference), ("--against", against), ("--save-reference", save_reference)):
        if value is not None:
            raise UsageError(f"{name} needs --probe URL")
    from penstock.api.preflight import preflight
    from penstock.cli.console import Watch, show

    with Watch("checking the launch") as watch:
        answer = preflight(**given, watch=watch)
    show(answer, as_json=as_json)


preflight_command = CommandWithActions(
    declared_command(check_command, "preflight"),
    {"learn": declared_command(learn_command, "learn"), "packs": declared_command(packs_command, "packs")},
)
