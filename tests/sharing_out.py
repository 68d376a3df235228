"""Which tests run in one worker: those of a file, and those of all files that compute the same things once."""

from functools import cache
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from import_closure import ROOT

APART: Final = {"tests/unit/planning/test_examples.py"}
"""Files whose tests share nothing."""
SHARED: Final = ("planted", "small_plans")
"""Helpers that keep what they computed, as long as the process lives."""


class ByFile(LoadScopeScheduling):  # type: ignore[misc] # of a package without types
    """Gives a file's tests to one worker, and files that share a helper's answers to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in APART else shared_helper(nodeid) or file


def shared_helper(nodeid: str) -> str:
    """Return the helper whose answers a test's file shares with others; empty where there is none."""
    file = nodeid.partition("::")[0]
    return "" if file in APART else _helper_of(file)


@cache
def _helper_of(file: str) -> str:
    text = (ROOT / file).read_text(encoding="utf-8")
    return next((name for name in SHARED if f"from {name} import" in text), "")
