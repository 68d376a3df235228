"""The `bench` command."""

from penstock.api.options.bench_options import BenchOptions
from penstock.cli.console import Watch, show
from penstock.cli.flags.option_flags import Given, with_flags
from penstock.cli.flags.shared_flags import AsJson


@with_flags(BenchOptions)
def bench_command(given: Given, *, as_json: AsJson = False) -> None:
    """Do my servers keep their SLO, and can they be compared?

    Asks every server for its setup and compares them: model, precision, KV cache, prefix cache, drafting, tokenizer,
    chat template, limits. A difference that makes times incomparable is refused, others are marked, and the certificate
    lists what no server says. Then runs an installed load tool with the requests of the file: the same for all targets,
    interleaved, warmed up and repeated with new prompts. Prints medians with ranges, goodput and dollars per million
    tokens, and whether each target passes. Without an installed tool it prints the commands in their order; after they
    have run, the same command judges their files. Exits 1 if servers cannot be compared or a target fails.

    Examples:

    - `penstock bench acceptance-amd.yaml --target amd=http://10.0.0.1:8000`
    - `penstock bench plan.yaml --rate 4 --target amd=http://10.0.0.1:8000 --target nvidia=http://10.0.0.2:8000`
    """
    from penstock.api.bench import bench

    with Watch("asking the servers") as watch:
        answer = bench(**given, watch=watch)
    show(answer, as_json=as_json)
