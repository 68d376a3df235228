"""Matches module names against the entries of a quantisation config in bounded time.

Entries are names, wildcards or regular expressions.
"""

import fnmatch
import re
from collections.abc import Callable
from typing import Any, Final

from penstock.errors import ConfigError

MAX_PATTERNS: Final = 200_000
_MAX_PATTERN_CHARS: Final = 512


def is_pattern(text: str) -> bool:
    """Return whether an entry is a wildcard or a regular expression, not a plain name."""
    return text.startswith("re:") or "*" in text or "?" in text


def plain_matcher(names: set[str], *, contains: bool) -> Callable[[str], bool]:
    """Return a function that tests whether a module, or a parent of the module, is in `names`.

    `names` can also hold single parts of a module path. If `contains` is true, any part of the module path can match,
    otherwise only the last part.
    """

    def matches(module: str) -> bool:
        parts = module.split(".")
        prefixes = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        if any(prefix in names for prefix in prefixes):
            return True
        return any(part in names for part in parts) if contains else parts[-1] in names

    return matches


def matcher(pattern: str, *, contains: bool) -> Callable[[str], bool]:
    """Return a function that tests whether a module matches one entry.

    The entry is a regular expression (`re:`), a wildcard or a name.
    """
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ConfigError(f"a module pattern has {len(pattern):,} characters; at most {_MAX_PATTERN_CHARS} are allowed")
    if pattern.startswith("re:"):
        return _linear_time_regex(pattern.removeprefix("re:"))
    if "*" in pattern or "?" in pattern:
        # An entry that matches a parent also covers the children, as in the engines.
        compiled = re.compile(fnmatch.translate(pattern))
        below = re.compile(fnmatch.translate(f"{pattern}.*"))
        return lambda module: bool(compiled.match(module) or below.match(module))
    return plain_matcher({pattern}, contains=contains)


def _linear_time_regex(pattern: str) -> Callable[[str], bool]:
    """Compile a regular expression with RE2, which runs in linear time.

    A checkpoint is untrusted, and its regular expression could make a backtracking engine hang.
    """
    import re2  # noqa: PLC0415 - only checkpoints that carry a regular expression pay for it

    options: Any = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error:
        raise ConfigError(
            f"module pattern '{pattern[:80]}' is malformed, or uses look-around, "
            "which cannot be matched in bounded time"
        ) from None
    return lambda module: compiled.match(module) is not None
