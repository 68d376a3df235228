"""Every config collected for the project, on every accelerator, with both engines: an answer, never an exception."""

from collections import defaultdict
from pathlib import Path

import pytest

from penstock.catalog import load_accelerators
from penstock.fleet import Parallelism, Release
from penstock.fleet.engine import EngineName
from penstock.model import read_model
from penstock.model.config import parse_json
from penstock.preflight import Asked, PreflightQuestion, Readiness, Subject, check, load_knowledge, read_scheme

pytestmark = pytest.mark.shared
ENGINES: tuple[tuple[EngineName, str], ...] = (("vllm", "0.32.0"), ("sglang", "0.5.18"))
LARGE_BYTES = 10**11


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


def test_every_config_on_every_accelerator_with_both_engines_gets_an_answer(shared: Path) -> None:
    folder, knowledge = shared / "data" / "model_configs", load_knowledge()
    assert len(list(folder.glob("*.json"))) >= 117
    unknown: dict[str, list[float]] = defaultdict(list)
    verdicts: dict[Readiness, int] = defaultdict(int)
    for subject in subjects(folder):
        split = Parallelism(tp=8 if subject.model.weight_bytes > LARGE_BYTES else 1)
        for part in load_accelerators():
            for engine, version in ENGINES:
                asked = Asked(parallelism=split)
                question = PreflightQuestion(
                    subject=subject, accelerator=part, engine=engine, version=Release(version), asked=asked
                )
                answer = check(question, knowledge)
                verdicts[answer.readiness] += 1
                unknown[subject.model.architecture].append(len(answer.unknown_facts) / len(answer.facts))
    assert sum(verdicts.values()) >= 88 * 29 * 2
    assert set(verdicts) >= {Readiness.BLOCKED, Readiness.RUNS, Readiness.SLOW, Readiness.UNDETERMINED}
    # docs/preflight.md reports the share per architecture: a config without its headers leaves about a sixth open.
    shares = {name: sum(values) / len(values) for name, values in unknown.items()}
    assert max(shares.values()) < 0.25, shares
