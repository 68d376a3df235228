"""How are questions answered that do not hang on each other? Side by side: the solver leaves Python alone meanwhile."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Answer = TypeVar("_Answer")


def in_parallel(questions: Sequence[Callable[[], _Answer]]) -> Iterator[_Answer]:
    """Ask all of them and give the answers in the order of the questions, each as soon as it is there."""
    with ThreadPoolExecutor(max_workers=max(1, min(len(questions), os.cpu_count() or 1))) as workers:
        waiting = [workers.submit(question) for question in questions]
        for one in waiting:
            yield one.result()
