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
    """Return whether an entry is more than a plain name."""
    return text.startswith("re:") or "*" in text or "?" in text


def plain_matcher(names: set[str], *, contains: bool) -> Callable[[str], bool]:
    """Return a test for listed modules and modules inside a listed parent.

    With `contains`, any part of the module path can be listed. Otherwise only its last part can be listed.
    """

    def matches(module: str) -> bool:
        parts = module.split(".")
        prefixes = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        if any(prefix in names for prefix in prefixes):
            return True
        return any(part in names for part in parts) if contains else parts[-1] in names

    return matches


def matcher(pattern: str, *, contains: bool) -> Callable[[str], bool]:
    """Return a test for one entry: a regular expression (`re:`), a wildcard, or a name."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ConfigError(f"a module pattern of {len(pattern):,} characters is too long")
    if pattern.startswith("re:"):
        return _linear_time_regex(pattern.removeprefix("re:"))
    if "*" in pattern or "?" in pattern:
        # A listed parent covers its children, as in the engines.
        compiled = re.compile(fnmatch.translate(pattern))
        below = re.compile(fnmatch.translate(f"{pattern}.*"))
        return lambda module: bool(compiled.match(module) or below.match(module))
    return plain_matcher({pattern}, contains=contains)


def _linear_time_regex(pattern: str) -> Callable[[str], bool]:
    """Compile with RE2. A checkpoint is untrusted, and it could make a backtracking engine hang."""
    import re2  # noqa: PLC0415 - only checkpoints that carry a regular expression pay for it

    options: Any = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error:
        raise ConfigError(
            f"module pattern '{pattern[:80]}' cannot be matched in bounded time (look-around or malformed)"
        ) from None
    return lambda module: compiled.match(module) is not None
