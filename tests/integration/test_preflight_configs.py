"""Every config collected for the project, on every chip, with both engines: an answer that agrees with itself."""

import json
import time
from collections import defaultdict
from pathlib import Path

import pytest

from penstock.catalog import find_model, load_accelerators
from penstock.fleet import Parallelism, Release
from penstock.fleet.engines import EngineName
from penstock.model import read_model
from penstock.model.config_json import parse_json
from penstock.performance import fit
from penstock.preflight import (
    LaunchChoices,
    Preflight,
    PreflightQuestion,
    Readiness,
    Subject,
    check,
    load_knowledge,
    read_scheme,
)
from penstock.preflight.facts.derive_facts import chip_of
from penstock.preflight.rules.condition import Unknown

pytestmark = [pytest.mark.shared, pytest.mark.refit("../shared/data/model_configs")]
ENGINES: tuple[tuple[EngineName, str], ...] = (("vllm", "0.32.0"), ("sglang", "0.5.18"))
LARGE_BYTES = 10**11
MAIN = ("gfx942", "gfx950", "sm_90", "sm_100")
OPEN_SHARE = 0.15
SECONDS_EACH = 0.2
"""Of processor time for one answer, on average: other work on the machine must not decide."""


def subjects(folder: Path) -> list[Subject]:
    found = []
    for path in sorted(folder.glob("*_config.json")):
        if path.name.endswith("_hf_quant_config.json"):
            continue
        base = path.name.removesuffix("_config.json")
        beside = folder / f"{base}_hf_quant_config.json"
        config = parse_json(path.read_bytes(), path.name)
        sidecar = parse_json(beside.read_bytes(), beside.name) if beside.is_file() else None
        model = read_model(config, base, sidecar)
        found.append(Subject(model=model, scheme=read_scheme(model, config, sidecar), name=base.replace("--", "/")))
    return found


def contradicts_itself(answer: Preflight) -> str | None:
    """Name a verdict that disagrees with the memory module, or with what is printed beside it."""
    memory = answer.memory
    again = fit(memory.deployment, memory.context_tokens)
    if again.fits != memory.fits:
        return "memory was asked twice and answered twice"
    stops = {obstacle.kind for obstacle in answer.obstacles}
    room = stops & {"memory", "context", "split"}
    if room and memory.fits:
        return f"{room} without an obstacle in memory"
    # SGLang starts with a context that does not fit.
    excused = answer.question.engine == "sglang" and memory.obstacle_is("context")
    if not memory.fits and not room and answer.narrow is None and not excused:
        return "memory refuses it and the verdict does not say so"
    if (answer.readiness is Readiness.BLOCKED) != bool(not answer.passes and answer.readiness != "silent-wrong"):
        return "the verdict and the exit code differ"
    if answer.cut is not None and answer.question.launch is None and not memory.fits and memory.certain:
        return "the proposed context does not fit"
    return None


def test_every_config_on_every_chip_with_both_engines_gets_an_answer_that_agrees_with_memory(
    shared: Path,
) -> None:
    folder, knowledge = shared / "data" / "model_configs", load_knowledge()
    assert len(list(folder.glob("*.json"))) >= 117
    unknown: dict[str, list[float]] = defaultdict(list)
    verdicts: dict[str, list[Readiness]] = defaultdict(list)
    # Parts of one chip differ in memory and links: one of each chip, the largest last.
    accelerators = {
        accelerator.compute_target: accelerator
        for accelerator in sorted(load_accelerators(), key=lambda accelerator: accelerator.memory.hbm_bytes)
    }
    started = time.process_time()
    for subject in subjects(folder):
        split = Parallelism(tp=8 if subject.model.weight_bytes > LARGE_BYTES else 1)
        for accelerator in accelerators.values():
            for engine, version in ENGINES:
                asked = LaunchChoices(parallelism=split)
                question = PreflightQuestion(
                    subject=subject, accelerator=accelerator, engine=engine, version=Release(version), asked=asked
                )
                answer = check(question, knowledge)
                assert contradicts_itself(answer) is None, (subject.name, accelerator.id, engine)
                verdicts[chip_of(accelerator.compute_target) or accelerator.id].append(answer.readiness)
                missing = sum(isinstance(value, Unknown) for value in answer.facts.values())
                unknown[subject.model.architecture].append(missing / len(answer.facts))
    asked_about = sum(len(given) for given in verdicts.values())
    assert asked_about >= 88 * len(accelerators) * 2
    assert time.process_time() - started < SECONDS_EACH * asked_about
    # Chips most people serve on are decided for nearly everything.
    open_share = {chip: given.count(Readiness.UNDETERMINED) / len(given) for chip, given in verdicts.items()}
    assert {chip: open_share[chip] for chip in MAIN if open_share[chip] > OPEN_SHARE} == {}
    # docs/evidence.md has the share: a config without its headers leaves about a sixth open.
    shares = {name: sum(values) / len(values) for name, values in unknown.items()}
    assert max(shares.values()) < 0.25, shares


def test_every_collected_config_has_a_name_that_is_the_same_model(shared: Path) -> None:
    for subject in subjects(shared / "data" / "model_configs"):
        known = find_model(subject.name)
        trimmed = read_model(
            parse_json(_json(known.config), known.id),
            subject.model.name,
            None if known.quantisation_file is None else parse_json(_json(known.quantisation_file), known.id),
        )
        # Routed experts of Step 3.7 and all of GLM-5.3 are FP8; the collected copies of their configs leave that out.
        if subject.name not in ("stepfun-ai/Step-3.7-Flash-FP8", "zai-org/GLM-5.3"):
            assert trimmed.weight_bytes == subject.model.weight_bytes, subject.name
            assert trimmed.max_context_tokens == subject.model.max_context_tokens, subject.name
        assert known.repo.lower() == subject.name.lower()


def _json(raw: object) -> bytes:
    return json.dumps(raw).encode()
