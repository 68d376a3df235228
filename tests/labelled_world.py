"""What runs and what breaks, as others found it: labelled setups, and what preflight says; docs and tests read both."""

import csv
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from penstock.catalog import load_accelerator
from penstock.checkpoint import open_checkpoint
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import NEWEST, EngineName
from penstock.model import ModelSpec
from penstock.model.config_json import Config
from penstock.model.model_spec import model_as_measured
from penstock.model.weight import MXFP8
from penstock.preflight import (
    LaunchChoices,
    Preflight,
    PreflightQuestion,
    Severity,
    Subject,
    check,
    load_knowledge,
    parse_command,
    read_scheme,
)
from penstock.preflight.facts.subject import smallest_split, subject_of

DATA = Path(__file__).parent / "data" / "world"
GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "preflight.md"
"""The page that has figures of preflight between the marks `counts` and `score`."""
ASKED_ENGINES: Mapping[str, EngineName] = {"vllm": "vllm", "sglang": "sglang"}
RECIPES_READ = "0.27.1"
"""The newest release when the recipes were read."""
_MXFP8_RELEASES = ("minimax-m3",)
"""Models whose eight-bit release is MXFP8."""
_METHODS: Mapping[str, Mapping[str, Any]] = {
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "mxfp4": {"quant_method": "quark", "global_quant_config": {"input_tensors": {"dtype": "fp4"}}},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "mxfp8": {"quant_method": "mxfp8"},
    "int4": {"quant_method": "gptq"},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One setup on one release."""

    id: str
    engine: str
    release: str
    """Empty where nobody names it."""
    model: str
    accelerator: str
    split: Parallelism | None
    """None is the smallest that holds it."""
    source: str
    weights: str = ""
    """A format other than the model's own."""
    checkpoint: str = ""
    context_tokens: int | None = None
    flags: str = ""
    command: str = ""
    """A whole launch line, instead of what preflight proposes."""
    host: Mapping[str, str] = field(default_factory=dict)
    expected: str = ""
    """What must be found: a rule, or the kind of obstacle."""
    quantisation: Mapping[str, Any] | None = None
    missed: str = ""
    """Why it is not caught, where it is not."""


def measured_runs() -> list[Case]:
    """Every single-node configuration InferenceX measured, on every release its image had."""
    with (DATA / "runs.csv").open(newline="", encoding="utf-8") as file:
        return [_measured(row) for row in csv.DictReader(file)]


def _measured(row: Mapping[str, str]) -> Case:
    split = Parallelism(tp=int(row["tp"]), dp=int(row["dp"]), expert_parallel=row["ep"] == "1")
    return Case(
        id=row["case"],
        engine=row["engine"],
        release=row["release"],
        model=row["model"],
        weights=row["weights"],
        checkpoint=row["checkpoint"],
        accelerator=row["accelerator"],
        split=split,
        context_tokens=int(row["context_tokens"]),
        flags=row["flags"],
        source=row["source"],
    )


def verified_recipes() -> Iterator[Case]:
    """Every recipe of vLLM that names hardware it was verified on, from its first release and on the newest."""
    models = {known.repo: known.id for known in _catalog()}
    boards = {part.partition("_")[0]: part for part in ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm")}
    for repository, entry in load_knowledge().recipes.items():
        for chip, status in entry["hardware"].items():
            if status != "verified" or repository not in models or chip not in _parts():
                continue
            # A recipe names the first release that has the model, not the ones its hardware was verified on.
            for release in (RECIPES_READ, str(NEWEST["vllm"])):
                yield Case(
                    id=f"recipe:{repository}",
                    engine="vllm",
                    release=release,
                    model=models[repository],
                    accelerator=boards.get(chip, chip),
                    split=None,
                    source=f"recipes@8959cf64189c:models/{repository}.yaml",
                )


def known_breaks() -> list[Case]:
    """Every failure others reported, on each release it was seen or is known to hold on."""
    written = tomllib.loads((DATA / "breaks.toml").read_text(encoding="utf-8"))["break"]
    return [case for entry in written for case in _broken(entry)]


def _broken(entry: Mapping[str, Any]) -> Iterator[Case]:
    split = Parallelism(
        tp=entry.get("tp", 1), pp=entry.get("pp", 1), dp=entry.get("dp", 1), expert_parallel=entry.get("ep", False)
    )
    for release in entry["releases"]:
        yield Case(
            id=entry["id"],
            engine=entry.get("engine", "vllm"),
            release=release,
            model=entry["model"],
            weights=entry.get("weights", ""),
            quantisation=entry.get("quantisation"),
            accelerator=entry["on"],
            split=split,
            context_tokens=entry.get("context"),
            flags=entry.get("flags", ""),
            command=entry.get("command", ""),
            host=entry.get("host", {}),
            expected=entry["expected"],
            missed=entry.get("missed", ""),
            source=entry["source"],
        )


@cache
def _catalog() -> tuple[Any, ...]:
    from penstock.catalog import load_models  # noqa: PLC0415 - only recipes need it

    return tuple(load_models())


@cache
def _parts() -> frozenset[str]:
    from penstock.catalog import load_accelerators  # noqa: PLC0415 - only recipes need it

    return frozenset(part.id.partition("_")[0] for part in load_accelerators())


@cache
def _released(model: str) -> Subject:
    return subject_of(open_checkpoint(model), model)


def subject(case: Case) -> Subject:
    """The checkpoint, in the format of the case."""
    released = _released(case.model)
    named = replace(released, name=case.checkpoint or released.name)
    section: Mapping[str, Any] | None = case.quantisation or _METHODS.get(case.weights)
    spec = _stored(released.model, case)
    if case.quantisation is None and spec is released.model:
        return named
    sidecar = None if section is None else Config({"quantization": dict(section)}, "hf_quant_config.json")
    return replace(named, model=spec, scheme=read_scheme(spec, None, sidecar))


def _stored(model: ModelSpec, case: Case) -> ModelSpec:
    if case.weights == "fp8" and case.model in _MXFP8_RELEASES:
        return model.stored_as(MXFP8)
    return model if not case.weights or case.weights in model.formats else model_as_measured(model, case.weights)


def ask(case: Case) -> Preflight:
    """Ask preflight about a case: with its own launch, or the one proposed with the flags of the case."""
    engine = ASKED_ENGINES[case.engine]
    part, asked_about = load_accelerator(case.accelerator), subject(case)
    split = case.split or smallest_split(asked_about, part, case.context_tokens)
    asked = LaunchChoices(parallelism=split, context_tokens=case.context_tokens)
    version = Release(case.release) if case.release else NEWEST[engine]
    question = PreflightQuestion(
        subject=asked_about,
        accelerator=part,
        engine=engine,
        version=version,
        asked=asked,
        host=dict(case.host),
    )
    if case.command:
        return check(replace(question, launch=parse_command(case.command)[1]), load_knowledge())
    proposed = check(question, load_knowledge())
    if not case.flags:
        return proposed
    added = parse_command(f"vllm serve model {case.flags}")[1].flags
    return check(
        replace(question, launch=replace(proposed.launch, flags={**proposed.launch.flags, **added})), load_knowledge()
    )


def refused_by(answer: Preflight) -> frozenset[str]:
    """Name everything that stops it or spoils its answers."""
    stops = (Severity.BLOCKER, Severity.SILENT_WRONG)
    rules = {finding.rule.id for severity in stops for finding in answer.assessment.of(severity)}
    return frozenset(rules | {obstacle.kind for obstacle in answer.obstacles})


def caught_by(answer: Preflight) -> frozenset[str]:
    """Name everything that would have warned: what refuses it, and what says that it may fail."""
    narrow = {answer.narrow.kind} if answer.narrow is not None else set()
    return refused_by(answer) | {finding.rule.id for finding in answer.assessment.of(Severity.WARNING)} | narrow


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One case, and what preflight says of it."""

    case: Case
    named: frozenset[str]
    """What refuses a run, or what would have warned of a break."""

    @property
    def right(self) -> bool:
        """Whether a run is let through, or a break is caught for its reason."""
        return self.case.expected in self.named if self.case.expected else not self.named

    @property
    def place(self) -> tuple[str, str]:
        """Engine and vendor."""
        return self.case.engine, load_accelerator(self.case.accelerator).vendor


@cache
def outcomes() -> tuple[Outcome, ...]:
    """Ask about every case of the engines preflight knows; cases that ask the same are asked once."""
    asked: dict[object, Preflight] = {}
    found = []
    runs = [case for case in measured_runs() if case.engine in ASKED_ENGINES]
    for case in (*runs, *verified_recipes(), *known_breaks()):
        key = repr(replace(case, id="", source="", expected="", missed=""))
        if key not in asked:
            asked[key] = ask(case)
        found.append(Outcome(case=case, named=(caught_by if case.expected else refused_by)(asked[key])))
    return tuple(found)


def confusion_table(found: Iterable[Outcome]) -> str:
    """Draw the table of tools/results/preflight-world.csv."""
    places: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        places.setdefault(outcome.place, []).append(outcome)
    lines = [
        "| engine | on | runs | let through | refused | breaks | caught, right reason | other reason | missed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for (engine, vendor), group in sorted(places.items()):
        row = _row(group)
        total.update(row)
        lines.append(f"| {engine} | {vendor} | " + " | ".join(f"{row[name]:,}" for name in _COLUMNS) + " |")
    lines.append("| all | | " + " | ".join(f"{total[name]:,}" for name in _COLUMNS) + " |")
    return "\n".join(lines)


_COLUMNS = ("runs", "let_through", "refused", "breaks", "caught", "other", "missed")


def _row(group: list[Outcome]) -> Counter[str]:
    runs = [outcome for outcome in group if not outcome.case.expected]
    breaks = [outcome for outcome in group if outcome.case.expected]
    return Counter({
        "runs": len(runs),
        "let_through": sum(outcome.right for outcome in runs),
        "refused": sum(not outcome.right for outcome in runs),
        "breaks": len(breaks),
        "caught": sum(outcome.right for outcome in breaks),
        "other": sum(bool(outcome.named) and not outcome.right for outcome in breaks),
        "missed": sum(not outcome.named for outcome in breaks),
    })  # fmt: skip


def score_sentence(found: Iterable[Outcome]) -> str:
    """Say in one line how many setups are refused wrongly, and how many failures are found."""
    total = _row(list(found))
    return (
        f"Of {total['runs']:,} setups that others ran, {total['refused']} are refused. "
        f"Of {total['breaks']} reported failures, {total['caught']} are found for the right reason."
    )


def missed_table(found: Iterable[Outcome]) -> str:
    """Draw the breaks that are not caught for their reason, the table of tools/results/preflight-missed.csv."""
    wrong = [outcome.case for outcome in found if outcome.case.expected and not outcome.right]
    rows = (f"| {case.id} | {case.engine} {case.release} | {case.source} | {case.missed} |" for case in wrong)
    return "\n".join(["| case | release | source | why |", "|---|---|---|---|", *rows])


def rule_counts() -> str:
    """Draw the rules by severity and by how they are known."""
    from penstock.preflight import Grounds, load_rules  # noqa: PLC0415 - only the note needs them

    severities = Counter(rule.severity for rule in load_rules())
    grounds = Counter(rule.grounds for rule in load_rules())
    left = [f"{severity}: {_MEANS[severity]} | {severities[severity]}" for severity in Severity]
    right = [f"{ground}: {_KNOWN[ground]} | {grounds[ground]}" for ground in Grounds] + [" | "] * 2
    rows = [f"| {a} | | {b} |" for a, b in zip(left, right, strict=True)]
    return "\n".join(["| severity | rules | | known from | rules |", "|---|---|---|---|---|", *rows])


_MEANS: Mapping[str, str] = {
    "silent-wrong": "answers come back and are wrong, for sure or by default",
    "blocker": "cannot start, or must crash",
    "warning": "may fail, and often does not",
    "slow": "runs below what the chip could",
    "info": "worth knowing",
}
_KNOWN: Mapping[str, str] = {
    "source": "read at the release named",
    "derived": "follows from source, not run on the device",
    "issue": "reported in the thread named",
}
