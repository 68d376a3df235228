"""Writes and parses Prometheus's text format 0.0.4, for the metrics pages of the gateway and the emulator.

This module does not use prometheus_client, which takes 11 to 13 times as long (docs/decisions.md).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')
_SAMPLE: Final = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)$', re.MULTILINE)
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_CHARACTERS: Final = {escape: character for character, escape in _ESCAPES.items()}
_ESCAPE_TABLE: Final = str.maketrans(_ESCAPES)
_ESCAPE: Final = re.compile(r'\\[\\"n]')


class Sample(NamedTuple):
    """One sample of a metrics page: metric name, labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram: a count per upper bound, and the sum of all values."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    """Values by upper bound, and last the values above all bounds."""
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


def write_labels(labels: Mapping[str, str]) -> str:
    """Return the label text of a sample, which is the text between the braces. Label values are escaped."""
    return ",".join(f'{name}="{value.translate(_ESCAPE_TABLE)}"' for name, value in labels.items())


def metric_lines(name: str, samples: Iterable[tuple[str, float]], help_text: str | None = None) -> list[str]:
    """Return the lines of a counter or a gauge. A metric is a counter if its name ends in `_total`.

    Each sample is a pair of label text and value. The label text comes from `write_labels` and may be empty.
    """
    lines = [] if help_text is None else [f"# HELP {name} {help_text}"]
    lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
    for labels, value in samples:
        lines.append(f"{name}{{{labels}}} {float(value)!r}" if labels else f"{name} {float(value)!r}")
    return lines


def histogram_lines(name: str, samples: Iterable[tuple[str, Histogram]], help_text: str | None = None) -> list[str]:
    """Return the lines of a histogram. Each sample is a pair of label text and values."""
    lines = [] if help_text is None else [f"# HELP {name} {help_text}"]
    lines.append(f"# TYPE {name} histogram")
    for labels, values in samples:
        below = 0
        for bound, count in zip((*values.bounds, "+Inf"), values.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {below}.0')
        lines += [f"{name}_count{{{labels}}} {below}.0", f"{name}_sum{{{labels}}} {values.total!r}"]
    return lines


def write_page(lines: Iterable[str]) -> bytes:
    """Return a metrics page with the given lines."""
    return ("\n".join(lines) + "\n").encode()


def read_samples(page: str) -> Iterator[Sample]:
    """Yield the samples of a page that this module wrote."""
    for name, labels, value in _SAMPLE.findall(page):
        pairs = ((key, _ESCAPE.sub(lambda found: _CHARACTERS[found[0]], text)) for key, text in _LABEL.findall(labels))
        yield Sample(name, dict(pairs), float(value))
