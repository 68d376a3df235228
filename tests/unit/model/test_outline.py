"""Figures that configs spell in more than one way."""

import pytest

from penstock.model.architectures.outline import context_length
from penstock.model.config_json import Config


@pytest.mark.parametrize(
    ("stated", "tokens"),
    [
        ({"max_position_embeddings": 131_072}, 131_072),
        # Command-R states both, and engines take the longer one.
        ({"max_position_embeddings": 8192, "model_max_length": 131_072}, 131_072),
        ({}, None),
    ],
)
def test_the_longest_context(stated: dict[str, object], tokens: int | None) -> None:
    assert context_length(Config(stated, "config.json")) == tokens
