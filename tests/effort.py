"""How long random tests run: briefly in CI, at full length with PENSTOCK_THOROUGH=1 (`make thorough`)."""

import os
from typing import Final

THOROUGH: Final = os.environ.get("PENSTOCK_THOROUGH", "") == "1"
CI_EXAMPLES: Final = 25


def examples(thorough: int) -> int:
    """Return the number of examples of a property whose examples are dear."""
    return thorough if THOROUGH else min(thorough, CI_EXAMPLES)


def fuzz_cases(quick: int, thorough: int) -> int:
    """Return the number of fuzzed inputs; PENSTOCK_FUZZ_CASES overrides it."""
    return int(os.environ.get("PENSTOCK_FUZZ_CASES") or (thorough if THOROUGH else quick))
