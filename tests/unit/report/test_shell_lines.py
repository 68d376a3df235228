"""A long command is broken into lines that a shell reads as the command."""

import shlex

import pytest

from penstock.report.drawing.shell_lines import shell_lines

COMMAND = "penstock simulate llama-3.3-70b --on h200,mi325x --in 2048 --out 400 --rate 1 --slo 'ttft=1s' --capacity"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_shell_reads_the_same_words(width: int) -> None:
    lines = shell_lines(COMMAND, width)
    assert max(map(len, lines)) <= width
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(COMMAND)


def test_an_option_stays_with_its_value() -> None:
    for width in range(40, 100):
        starts = [line.split()[0] for line in shell_lines(COMMAND, width)[1:]]
        assert all(word.startswith("--") or word == "llama-3.3-70b" for word in starts), (width, starts)
