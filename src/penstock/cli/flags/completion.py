"""Completes names of models and accelerators in a shell."""

from collections.abc import Callable, Mapping
from typing import Final

import click
from click.shell_completion import CompletionItem


def _complete_model(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the models of the catalog that begin with the typed letters, or files if there is none."""
    from penstock.catalog import model_ids

    found = [CompletionItem(name) for name in model_ids() if name.startswith(typed.lower())]
    return found or [CompletionItem(typed, type="file")]


def _complete_accelerator(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the accelerators that begin with the letters after the last comma."""
    from penstock.catalog import accelerator_ids

    before, comma, last = typed.rpartition(",")
    return [CompletionItem(f"{before}{comma}{name}") for name in accelerator_ids() if name.startswith(last.lower())]


COMPLETERS: Final[Mapping[str, Callable[[click.Context, click.Parameter, str], list[CompletionItem]]]] = {
    "models": _complete_model,
    "accelerators": _complete_accelerator,
}
"""Functions that complete the values of a flag, keyed by `Flag.values`."""
