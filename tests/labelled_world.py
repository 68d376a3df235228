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
from penstock.fleet.engine import NEWEST, EngineName
from penstock.model.config import Config
from penstock.model.spec import model_as_measured
from penstock.preflight import (
    Asked,
    Launch,
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
from penstock.preflight.launch.plan import plan_launch

DATA = Path(__file__).parent / "data" / "world"
ASKED_ENGINES: Mapping[str, EngineName] = {"vllm": "vllm", "sglang": "sglang"}
_METHODS: Mapping[str, Mapping[str, Any]] = {
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "mxfp4": {"quant_method": "quark", "global_quant_config": {"input_tensors": {"dtype": "fp4"}}},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
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
            for release in {str(entry.get("since") or ""), str(NEWEST["vllm"])}:
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
    spec = released.model if not case.weights else model_as_measured(released.model, case.weights)
    if case.quantisation is None and spec is released.model:
        return named
    sidecar = None if section is None else Config({"quantization": dict(section)}, "hf_quant_config.json")
    return replace(named, model=spec, scheme=read_scheme(spec, None, sidecar))


def ask(case: Case) -> Preflight:
    """Ask preflight about a case: with its own launch, or the one proposed with the flags of the case."""
    engine = ASKED_ENGINES[case.engine]
    part, asked_about = load_accelerator(case.accelerator), subject(case)
    split = case.split or smallest_split(asked_about, part, case.context_tokens)
    asked = Asked(parallelism=split, context_tokens=case.context_tokens)
    version = Release(case.release) if case.release else NEWEST[engine]
    question = PreflightQuestion(
        subject=asked_about,
        accelerator=part,
        engine=engine,
        version=version,
        asked=asked,
        launch=_launch(case, plan_launch(asked_about, part, engine, version, asked).as_launch()),
        host=dict(case.host),
    )
    return check(question, load_knowledge())


def _launch(case: Case, proposed: Launch) -> Launch | None:
    if case.command:
        return parse_command(case.command)[1]
    if not case.flags:
        return None
    added = parse_command(f"vllm serve model {case.flags}")[1]
    return replace(proposed, flags={**proposed.flags, **added.flags})


def refused_by(answer: Preflight) -> frozenset[str]:
    """Name everything that stops it or spoils its answers."""
    stops = (Severity.BLOCKER, Severity.SILENT_WRONG)
    rules = {finding.rule.id for severity in stops for finding in answer.assessment.of(severity)}
    return frozenset(rules | {obstacle.kind for obstacle in answer.obstacles})


def caught_by(answer: Preflight) -> frozenset[str]:
    """Name everything that would have warned: what refuses it, and what says that it may fail."""
    return refused_by(answer) | {finding.rule.id for finding in answer.assessment.of(Severity.WARNING)}


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How one engine on one vendor's parts came out."""

    runs: int = 0
    refused: int = 0
    breaks: int = 0
    caught: int = 0
    wrong_rule: int = 0


def confusion(runs: Iterable[Case], breaks: Iterable[Case]) -> dict[tuple[str, str], Tally]:
    """Count every case by engine and vendor."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for case in runs:
        seen = counts.setdefault(_place(case), Counter())
        seen["runs"] += 1
        seen["refused"] += bool(refused_by(ask(case)))
    for case in breaks:
        seen, found = counts.setdefault(_place(case), Counter()), caught_by(ask(case))
        seen["breaks"] += 1
        seen["caught"] += case.expected in found
        seen["wrong_rule"] += bool(found) and case.expected not in found
    return {place: Tally(**seen) for place, seen in sorted(counts.items())}


def _place(case: Case) -> tuple[str, str]:
    return case.engine, load_accelerator(case.accelerator).vendor
