"""Receipts go on after a full disk, and say what is missing."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway_fakes import Clock, fleet, outcome
from penstock.gateway.picker.decision_receipts import ReceiptBook
from penstock.gateway.picker.outcome_receipts import gap_line
from penstock.gateway.picker.receipt_file import ReceiptFile
from penstock.gateway.picker.recorded_outcomes import read_traffic
from penstock.gateway.state.request_outcome import outcome_lines, outcome_rows


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond a size; a write is cut there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def lines(count: int, at_s: float = 11.0) -> list[str]:
    rows = outcome_rows([outcome(ended_unix_s=at_s)] * count)
    return [f'{{"version": 3, "ended": {line}}}' for line in outcome_lines(rows)]


def test_receipts_go_on_after_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Attack: 300 of 1,336 outcomes were in the file, none after the disk had room again, and nothing was counted."""
    path, clock, wall = tmp_path / "receipts.0.jsonl", Clock(), Clock()
    file = ReceiptFile(path, gap_line, clock, wall)
    file.write(lines(3), 3)
    with full_disk(path.stat().st_size + 700):
        for _ in range(20):
            clock.now_s, wall.now_s = clock.now_s + 1.0, wall.now_s + 1.0
            file.write(lines(2), 2)
    assert file.lost == 40
    assert len(caplog.records) == 1
    clock.now_s, wall.now_s = clock.now_s + 31.0, wall.now_s + 31.0
    file.write(lines(4), 4)
    file.close()
    traffic = read_traffic([path])
    assert len(traffic.outcomes) == 7
    assert [tuple(gap) for gap in traffic.gaps] == [(path.name, 1000.0, 1051.0, 40)]
    assert len(caplog.records) == 2


def test_a_reload_forgets_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "receipts.0.jsonl"
    first = ReceiptBook(path, 1, fleet().addresses)
    first.file.write(lines(1), 1)
    with full_disk(path.stat().st_size):
        first.file.write(lines(5), 5)
        first.close()
    second = ReceiptBook(first.file, 1, fleet().addresses)
    second.close()
    assert [gap.lost for gap in read_traffic([path]).gaps] == [5]


def test_only_the_owner_reads_receipts(tmp_path: Path) -> None:
    ReceiptBook(tmp_path / "receipts.0.jsonl", 1, fleet().addresses).close()
    assert (tmp_path / "receipts.0.jsonl").stat().st_mode & 0o777 == 0o600
