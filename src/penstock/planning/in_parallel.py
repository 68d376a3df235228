"""Runs independent calls in parallel threads; the solver releases the global interpreter lock."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

_Answer = TypeVar("_Answer")


def in_parallel(questions: Sequence[Callable[[], _Answer]]) -> Iterator[_Answer]:
    """Run all calls in parallel and yield their results in order, each as soon as it is available."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(questions), os.cpu_count() or 1))) as workers:
        waiting = [workers.submit(copy_context().run, question) for question in questions]
        for one in waiting:
            yield one.result()
