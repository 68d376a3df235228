"""Is a published time a mean or a median over requests? Each source says it once for all its rows."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from penstock.catalog.measurement import Measurement, Statistic

_STATISTIC: Final[dict[str, Statistic]] = {
    "inferencex": "median",
    "inferencex-cells": "median",
    "inferencex-via-aiconfigurator": "mean",
    "rocm-atom-nightly": "mean",
    "rocm-atomesh": "mean",
    "sglang-cookbook": "median",
    "vllm-recipes": "mean",
    "amd-infera": "mean",
    "inferencex-experimental": "median",
    "llm-d-matrix": "median",
}
"""The statistic of every time of a source. A source that is not named here does not say."""


def with_statistics(rows: Iterable[Measurement]) -> Iterator[Measurement]:
    """Mark each published time with the statistic that the row states, or else its source."""
    for row in rows:
        said = _STATISTIC.get(row.source)
        yield replace(
            row,
            tpot_statistic=None if row.tpot_s is None else row.tpot_statistic or said,
            ttft_statistic=None if row.ttft_s is None else row.ttft_statistic or said,
        )
