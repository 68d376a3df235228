"""Every number, truth value, null, key and identifier of JSON answers is the recorded one."""

import shlex
from collections.abc import Mapping
from typing import Final

import pytest
import yaml

from contract.conftest import Ask
from contract.doors import FOLDER, REPOSITORY
from contract.recording import RECORDED, Recorder

QUESTIONS: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load((FOLDER / "questions" / "json.yaml").read_text())
NAMES: Final = {f"{document}.{name}": words for document, asked in QUESTIONS.items() for name, words in asked.items()}
WITHOUT_SCHEMA: Final = ("accuracy", "fp8", "inspect", "tax", "workload")


@pytest.mark.parametrize("name", NAMES)
def test_json_answer(name: str, ask: Ask, recorded: Recorder) -> None:
    answer = ask([*shlex.split(NAMES[name]), "--json"])
    assert answer.exit_code in (0, 1, 4), answer.stderr
    document, _, _ = name.rpartition(".")
    if document not in WITHOUT_SCHEMA:
        assert answer.json["schema"].partition("/")[0] == f"penstock.{document}"
    recorded("json", name, {"exit_code": answer.exit_code, "answer": answer.json})


def test_every_document_is_asked() -> None:
    schemas = {
        path.stem.removeprefix("penstock.").rpartition("-")[0] for path in (REPOSITORY / "docs/schemas").iterdir()
    }
    assert schemas <= set(QUESTIONS)


def test_no_answer_without_question() -> None:
    assert {path.stem for path in (RECORDED / "json").iterdir()} == set(NAMES)
