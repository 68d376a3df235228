"""The `preflight learn` and `preflight packs` commands."""

from pathlib import Path
from typing import Annotated

from penstock.api.options.option_fields import Flag
from penstock.cli.flags.shared_flags import AsJson


def learn_command(
    releases: Annotated[
        list[str],
        Flag(
            positional=True,
            help="A wheel on disk, a directory with an installed vllm or sglang, or a release such as vllm==0.33.0, "
            "which pip downloads without its dependencies.",
        ),
    ],
    to: Annotated[
        Path | None,
        Flag(name="--to", help="Directory for the packs. Default: ~/.local/share/penstock/packs, or $PENSTOCK_PACKS."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a release of vLLM or SGLang, and keep what it accepts as a data pack.

    Reads flags, their negations and values, environment variables, architectures, backends, KV dtypes, quantisation
    methods, parsers and defaults, and whether the lines of source code that rules cite still stand. No code of the
    release is imported or run, and no GPU is needed. `preflight` uses the packs of the directory from then on.

    Examples:

    - `penstock preflight learn vllm==0.33.0`
    - `penstock preflight learn ./sglang-0.5.23-cp312-cp312-manylinux_2_34_x86_64.whl --to ./packs`
    - `penstock preflight learn ~/venv  # the vllm or sglang that is installed there`
    """
    from penstock.api.preflight_packs import learn
    from penstock.cli.console import Watch, show

    with Watch("reading the release"):
        answer = learn(releases, to=to)
    show(answer, as_json=as_json)


def packs_command(
    rules: Annotated[
        Path | None, Flag(name="--rules", help="Directory of your own rules and packs, as in `preflight --rules`.")
    ] = None,
    index: Annotated[
        bool, Flag(name="--index", help="Ask the package index, with pip, which newer releases there are.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the releases and rules that preflight knows.

    `known from` is the oldest release whose flags were read. `checked until` is the newest release against which
    rules, kernels and memory were checked. `packs` are releases that were learnt as a whole.

    Examples:

    - `penstock preflight packs`
    - `penstock preflight packs --index`
    """
    from penstock.api.preflight_packs import list_packs
    from penstock.cli.console import Watch, show

    with Watch("listing the packs"):
        answer = list_packs(rules=rules, index=index)
    show(answer, as_json=as_json)
