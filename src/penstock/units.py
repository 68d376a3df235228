"""Parses and formats amounts for input and output. Inside the program, all amounts are in SI units and bytes."""

import re

from penstock.errors import UsageError

GB = 10**9
GIB = 2**30
MIB = 2**20
TERA = 10**12

_TOKENS = re.compile(r"(\d{1,12})([kKmM]?)")
_TOKEN_SCALE = {"": 1, "k": 1024, "m": 1024**2}


def parse_tokens(text: str) -> int:
    """Parse a token count, written like a context length: 4096, 32k (32,768) or 1M (1,048,576)."""
    match = _TOKENS.fullmatch(text.strip())
    tokens = int(match[1]) * _TOKEN_SCALE[match[2].lower()] if match else 0
    if tokens < 1:
        raise UsageError(f"'{text[:40]}' is not a token count; use a number such as 4096, 32k or 1M")
    return tokens


def format_gib(count_bytes: float) -> str:
    """Format bytes in GiB, the unit in which engines log memory."""
    return f"{count_bytes / GIB:,.1f}"


def format_params(count: float) -> str:
    """Format a parameter count as model cards do: 8.03B, 1.04T, 494M."""
    if count >= TERA:
        return f"{count / TERA:.2f}T"
    if count >= GB:
        return f"{count / GB:.2f}B" if count < 100 * GB else f"{count / GB:.1f}B"
    return f"{count / 10**6:.0f}M"


def count_text(count: float, noun: str) -> str:
    """Format a number with its noun: 1 year, 1.5 years, 1,200 nodes."""
    return f"{count:,.12g} {noun if count == 1 else f'{noun}s'}"


def format_digits(value: float) -> str:
    """Format a number with three significant digits: 0.0123, 1.23, 12,300."""
    return f"{float(f'{value:.3g}'):,g}"


def format_s(seconds: float | None) -> str:
    """Format a time in ms, s, min or h, with three significant digits. None is formatted as `-`."""
    if seconds is None:
        return "-"
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size * (1 if unit == "s" else 2):
            return f"{format_digits(seconds / size)} {unit}"
    return f"{format_digits(seconds * 1e3)} ms"
