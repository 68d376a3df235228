"""Does it fit, and what is left for the KV cache?"""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags.options import AsJson, Dp, Ep, Kv, Precision
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.catalog.accelerator import Accelerator
    from penstock.fleet import Engine, Parallelism
    from penstock.model import ModelSpec
    from penstock.performance.memory.minimum import FitReport

EXAMPLES = """
Examples:

- `penstock fit llama-3.1-70b --on mi300x,h100,h200,b200`
- `penstock fit ./DeepSeek-R1 --on mi355x:8,b200:8 --context 128k --kv fp8`
- `penstock fit hf:Qwen/Qwen3-235B-A22B --on h200:4 --precision fp8 --json`
"""


def fit_command(
    model: Annotated[
        str, typer.Argument(help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name.")
    ],
    on: Annotated[
        str,
        typer.Option("--on", help="Accelerators, comma separated; `h100:2` is two of them (tp 2).", show_default=False),
    ],
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            help="Tokens per request, prompt and answer together: 4096, 32k, 1M. Left out: 8k, or the model's limit.",
        ),
    ] = None,
    precision: Precision = None,
    kv: Kv = "auto",
    tp: Annotated[
        int | None, typer.Option("--tp", min=1, help="Tensor parallel ranks, on every accelerator named.")
    ] = None,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")] = 1,
    dp: Dp = 1,
    ep: Ep = False,
    engine: Annotated[str, typer.Option("--engine", help="vllm or sglang.")] = "vllm",
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", help="Its release, such as 0.11.2: defaults and accounting differ."),
    ] = None,
    memory_fraction: Annotated[
        float | None,
        typer.Option("--memory-fraction", min=0.05, max=1.0, help="Share of the device the engine may use."),
    ] = None,
    batched_tokens: Annotated[
        int | None, typer.Option("--batched-tokens", min=1, help="Tokens of the largest step (max_num_batched_tokens).")
    ] = None,
    sequences: Annotated[
        int | None, typer.Option("--sequences", min=1, help="Requests of the largest step (max_num_seqs).")
    ] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="Load the checkpoint's own multi-token-prediction layers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Does it fit, and what is left for the KV cache?

    One row per accelerator: weights under the split, reserves of the engine, KV tokens with their P10-P90, how many
    requests of the asked context run together, and the fewest devices that would do with tensor parallelism inside a
    node, then whole nodes in a pipeline. `tight` fits at the median of the reserves but not at their P90. Exits 1 when
    it does not fit on one of them.
    """
    from penstock.cli.flags.choices import cache_choice, counted_targets, model_choice, split_choice
    from penstock.fleet import Deployment
    from penstock.model import Part
    from penstock.performance.memory.budget import usual_context_tokens
    from penstock.performance.memory.minimum import report_fit
    from penstock.units import parse_tokens

    asked_tokens = None if context is None else parse_tokens(context)
    cache_dtype, targets = cache_choice(kv), counted_targets(on)
    spec = model_choice(model, precision)
    if draft and Part.MTP not in spec.params_by_part:
        raise UsageError(f"--draft: {spec.name} has no multi-token-prediction layers of its own")
    context_tokens = asked_tokens or usual_context_tokens(spec)
    reports = []
    for accelerator, devices in targets:
        parallelism = split_choice(accelerator, devices, tp=tp, pp=pp, dp=dp, ep=ep)
        deployment = Deployment(
            model=spec,
            accelerator=accelerator,
            engine=_settings(
                accelerator,
                parallelism,
                name=engine,
                version=engine_version,
                memory_fraction=memory_fraction,
                batched_tokens=batched_tokens,
                sequences=sequences,
            ),
            parallelism=parallelism,
            cache_dtype=cache_dtype,
            speculative=draft,
        )
        reports.append(report_fit(deployment, context_tokens))
    _print(spec, reports, context_tokens, as_json=as_json)
    if not all(report.fit.fits for report in reports):
        raise typer.Exit(1)


fit_command.__doc__ = f"{fit_command.__doc__}\n{EXAMPLES}"


def _settings(
    accelerator: "Accelerator",
    parallelism: "Parallelism",
    *,
    name: str,
    version: str | None,
    memory_fraction: float | None,
    batched_tokens: int | None,
    sequences: int | None,
) -> "Engine":
    """Return the engine's defaults, except what was asked for."""
    from dataclasses import replace

    from penstock.cli.flags.choices import engine_choice
    from penstock.fleet import engine_defaults

    chosen = engine_defaults(engine_choice(name), accelerator, version=version, tp=parallelism.tp, pp=parallelism.pp)
    return replace(
        chosen,
        memory_fraction=memory_fraction or chosen.memory_fraction,
        max_batched_tokens=batched_tokens or chosen.max_batched_tokens,
        max_sequences=sequences or chosen.max_sequences,
    )


def _print(spec: "ModelSpec", reports: "list[FitReport]", context_tokens: int, *, as_json: bool) -> None:
    if as_json:
        from penstock.report.drawing.plain import to_json
        from penstock.report.fit.document import fit_document

        typer.echo(to_json(fit_document(spec, reports, context_tokens)))
    else:
        from penstock.cli.terminal import stdout
        from penstock.report.fit.terminal import print_fit

        print_fit(stdout(), spec, reports, context_tokens)
