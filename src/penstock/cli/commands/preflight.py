"""Will it run here, will it be right, and with which flags?"""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flags.options import AsJson
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.catalog.accelerator import Accelerator
    from penstock.fleet import Parallelism
    from penstock.preflight import Launch, Preflight, PreflightQuestion, Subject

EXAMPLES = """
Examples:

- `penstock preflight deepseek-r1 --on mi300x:8`
- `penstock preflight ./my-checkpoint --on mi325x,h200 --engine vllm --engine-version 0.24.0 --kv fp8`
- `penstock preflight gpt-oss-120b --on mi300x --command "vllm serve openai/gpt-oss-120b --swap-space 4"`
- `penstock preflight gpt-oss-120b --matrix` (every accelerator, both engines)
- `penstock preflight --probe http://127.0.0.1:8000 --save-reference h100.json`, then on the other vendor
  `penstock preflight --probe http://127.0.0.1:8001 --reference h100.json`
"""


def preflight_command(
    model: Annotated[
        str | None,
        typer.Argument(help="A config.json, a checkpoint directory, a name from `catalog models`, or hf:org/name."),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="Accelerators, comma separated; `mi300x:8` is eight of them.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="vllm or sglang.")] = "vllm",
    engine_version: Annotated[
        str | None, typer.Option("--engine-version", help="Its release; left out, the newest whose source was read.")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Tensor parallel ranks.")] = None,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, help="Attention data-parallel ranks that share the experts.")] = 1,
    ep: Annotated[bool, typer.Option("--ep", help="Spread whole experts over the ranks.")] = False,
    kv: Annotated[str, typer.Option("--kv", help="KV cache dtype: auto, bf16, fp8, fp8_e4m3, fp8_e5m2.")] = "auto",
    context: Annotated[str | None, typer.Option("--context", help="Tokens per request: 4096, 32k, 1M.")] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", help="A launch line of yours (vllm serve, sglang, docker run) to check instead."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="What is under the engine: rocm=7.2.3, python=3.12, install=wheel, ..."),
    ] = None,
    scan: Annotated[
        bool, typer.Option("--scan", help="Read the FP8 bytes as well (`penstock fp8 scan`), for a local checkpoint.")
    ] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Every accelerator and both engines, as a table.")] = False,
    probe: Annotated[
        str | None, typer.Option("--probe", help="Ask a running OpenAI-compatible endpoint instead: its base URL.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="With --probe: compare with this file of --save-reference.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="With --probe: compare with a second endpoint (the other vendor).")
    ] = None,
    save_reference: Annotated[
        str | None, typer.Option("--save-reference", help="With --probe: write what it answers to this file.")
    ] = None,
    served_model: Annotated[
        str | None, typer.Option("--served-model", help="With --probe: the name it serves; left out, the first listed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Will this checkpoint run here, will it be right, and with which flags?

    Reads the config and safetensors headers, never the weights. Findings are grouped by how they fail: silent-wrong
    (answers come back and are wrong), blocker, slow, info; a rule that cannot be decided is shown with what would
    settle it. Exits 1 on silent-wrong or blocker. With --probe it asks a running server and compares log-probabilities.
    """
    if probe is not None:
        from penstock.cli.commands.probe import run_probe

        run_probe(
            probe, reference=reference, against=against, save=save_reference, served=served_model, as_json=as_json
        )
        return
    for name, given in (("--reference", reference), ("--against", against), ("--save-reference", save_reference)):
        if given is not None:
            raise UsageError(f"{name} belongs to --probe URL")
    options = _Options(engine, engine_version, tp, pp, dp, kv, context, command, host or [], ep=ep)
    named = model or options.model
    if named is None:
        raise UsageError("no model is named; give a config.json, a directory, a catalog name or hf:org/name")
    subject = _subject(named, scan=scan)
    if matrix:
        if on is not None or command is not None:
            raise UsageError("--matrix covers every accelerator and both engines; leave out --on and --command")
        _matrix(subject, options, as_json=as_json)
        return
    if on is None:
        raise UsageError("no accelerator is named; write --on mi300x:8, or --matrix for all of them")
    answers = _answers(options.questions(subject, on))
    _print(answers, as_json=as_json)
    if not all(answer.passes for answer in answers):
        raise typer.Exit(1)


preflight_command.__doc__ = f"{preflight_command.__doc__}\n{EXAMPLES}"


class _Options:
    """What was typed, turned into questions."""

    def __init__(
        self,
        engine: str,
        version: str | None,
        tp: int | None,
        pp: int,
        dp: int,
        kv: str,
        context: str | None,
        command: str | None,
        host: list[str],
        *,
        ep: bool,
    ) -> None:
        from penstock.preflight import parse_command
        from penstock.units import parse_tokens

        self.engine, self.version, self.tp, self.pp, self.dp, self.ep = engine, version, tp, pp, dp, ep
        self.context_tokens = None if context is None else parse_tokens(context)
        self.cache_dtype = _cache_text(kv)
        self.host = dict(_pair(text) for text in host)
        self.launch: Launch | None = None
        if command is not None:
            named, launch = parse_command(command)
            self.engine = named or engine
            self._take(launch)

    def _take(self, launch: "Launch") -> None:
        """A launch line states its own split."""
        from penstock.cli.flags.choices import engine_choice
        from penstock.fleet import Release
        from penstock.fleet.engine import NEWEST
        from penstock.preflight import load_knowledge
        from penstock.preflight.facts.split import stated_split
        from penstock.preflight.launch.flags import spelled_out

        engine = engine_choice(self.engine)
        version = Release(self.version) if self.version else NEWEST[engine]
        self.launch = spelled_out(launch, load_knowledge().flags[engine]["flags"], version)
        stated = stated_split(self.launch, engine)
        self.tp, self.pp = self.tp or stated.tp, max(self.pp, stated.pp)
        self.dp, self.ep = max(self.dp, stated.dp), self.ep or stated.spreads_experts

    @property
    def model(self) -> str | None:
        """The model the launch line names."""
        return None if self.launch is None else self.launch.flag("model-path")

    def questions(self, subject: "Subject", on: str) -> "Iterable[PreflightQuestion]":
        """One question per accelerator named."""
        from penstock.cli.flags.choices import counted_targets, split_choice

        for part, devices in counted_targets(on):
            tp, pp = self.tp, self.pp
            if devices is not None and tp is None and self._machines(part, devices, pp):
                # Tensor parallelism stays where the fast link is; machines are stages of a pipeline.
                tp, pp = part.node.devices, devices // part.node.devices
            yield self.question(subject, part, split_choice(part, devices, tp=tp, pp=pp, dp=self.dp, ep=self.ep))

    def _machines(self, part: "Accelerator", devices: int, pp: int) -> bool:
        """Whether a count that was typed without a split is several whole machines without one link between them."""
        together = max(part.node.devices, (part.link.domain_devices if part.link else None) or 0)
        return pp == self.dp == 1 and devices > together and devices % part.node.devices == 0

    def question(self, subject: "Subject", part: "Accelerator", split: "Parallelism") -> "PreflightQuestion":
        """Ask about one placement."""
        from penstock.cli.flags.choices import engine_choice
        from penstock.fleet import Release
        from penstock.fleet.engine import NEWEST
        from penstock.preflight import Asked, PreflightQuestion

        engine = engine_choice(self.engine)
        return PreflightQuestion(
            subject=subject,
            accelerator=part,
            engine=engine,
            version=Release(self.version) if self.version else NEWEST[engine],
            asked=Asked(parallelism=split, cache_dtype=self.cache_dtype, context_tokens=self.context_tokens),
            launch=self.launch,
            host=self.host,
        )


def _subject(name: str, *, scan: bool) -> "Subject":
    from dataclasses import replace
    from pathlib import Path

    from penstock.checkpoint import open_checkpoint
    from penstock.preflight.facts.subject import scanned_facts, subject_of

    subject = subject_of(open_checkpoint(name, headers=True), name)
    if not scan:
        return subject
    folder = Path(name) if Path(name).is_dir() else Path(name).parent
    if not Path(name).exists():
        raise UsageError(f"--scan reads a checkpoint on this machine, and '{name}' is none")
    from penstock.checkpoint.fp8.scan import scan_bytes, scan_fp8
    from penstock.cli.terminal import byte_progress

    with byte_progress(scan_bytes(folder), "scanning") as advance:
        return replace(subject, scanned=scanned_facts(scan_fp8(folder, advance)))


def _answers(questions: "Iterable[PreflightQuestion]") -> "list[Preflight]":
    from penstock.preflight import check, load_knowledge

    knowledge = load_knowledge()
    return [check(question, knowledge) for question in questions]


def _matrix(subject: "Subject", options: _Options, *, as_json: bool) -> None:
    from penstock.catalog import load_accelerators
    from penstock.cli.terminal import progress
    from penstock.preflight.facts.subject import smallest_split

    questions = []
    for part in load_accelerators():
        for engine in ("vllm", "sglang"):
            options.engine = engine
            split = smallest_split(subject, part, options.context_tokens, engine)
            questions.append(options.question(subject, part, split))
    answers = _answers(progress(questions, total=len(questions), label="checking"))
    if as_json:
        _print(answers, as_json=True)
    else:
        from penstock.cli.terminal import stdout
        from penstock.report.preflight.terminal import render_matrix

        stdout().print(render_matrix(answers))


def _print(answers: "list[Preflight]", *, as_json: bool) -> None:
    from penstock.benchmark.shipped_rows import shipped_efficiencies
    from penstock.preflight import load_knowledge
    from penstock.preflight.nearest import nearest
    from penstock.preflight.speed import predicted_speed

    efficiencies, knowledge = shipped_efficiencies(), load_knowledge()
    speeds = [predicted_speed(answer, efficiencies) for answer in answers]
    instead = [nearest(answer, knowledge) for answer in answers]
    if as_json:
        from penstock.report.drawing.plain import to_json
        from penstock.report.preflight.document import preflight_document

        typer.echo(to_json(preflight_document(answers, speeds, instead)))
        return
    from penstock.cli.terminal import stdout
    from penstock.report.preflight.terminal import render_preflight

    console = stdout()
    for number, answer in enumerate(answers):
        if number:
            console.print()
        # A command that is cut cannot be pasted.
        console.print(render_preflight(answer, speeds[number], instead[number]), crop=False)


def _cache_text(text: str) -> str | None:
    known = ("auto", "bf16", "bfloat16", "fp16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")
    spelled = text.strip().lower()
    if spelled not in known:
        raise UsageError(f"--kv: '{text}' is not a cache dtype; write one of {', '.join(known)}")
    return {"auto": None, "bf16": "bfloat16", "fp16": "float16"}.get(spelled, spelled)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError(f"--host: '{text}' is not NAME=VALUE; write rocm=7.2.3")
    return name.strip(), value.strip()
