"""An option typed by its former name is refused in one line that says its name today."""

import subprocess
from collections.abc import Callable

import pytest

from penstock.cli.flags.renamed_options import RENAMED, refuse_renamed
from penstock.errors import UsageError

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(("command", "former"), RENAMED)
def test_the_new_name_is_an_option_of_the_command_and_the_former_is_none(
    penstock: Run, command: str, former: str
) -> None:
    words = penstock(command, "--help").stdout.split()
    assert RENAMED[command, former] in words
    assert former not in words


@pytest.mark.parametrize(("command", "former"), RENAMED)
def test_the_command_says_the_new_name_in_one_line(penstock: Run, command: str, former: str) -> None:
    result = penstock(command, "anything", former, "value")
    assert result.returncode == 2
    assert result.stderr == f"Error: {former} is now {RENAMED[command, former]}\n"


def test_a_name_with_its_value_is_refused_and_an_argument_after_two_dashes_is_not() -> None:
    with pytest.raises(UsageError, match=r"^--door is now --protocol$"):
        refuse_renamed(["route", "fleet.yaml", "--door=ext_proc"])
    refuse_renamed(["route", "--", "--door"])
    refuse_renamed(["predict", "--door"])
    refuse_renamed([])
