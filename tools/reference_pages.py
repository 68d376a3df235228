"""Writes the reference pages of the documentation from the code: commands, files, metrics, environment, llms.txt."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from generated_reference import environment_page, fleet_keys_page, metrics_reference, plan_keys_page

from penstock.cli.declared_commands import CommandWithActions, DeclaredGroup
from penstock.cli.root import app

REPOSITORY: Final = Path(__file__).resolve().parents[1]
DOCS: Final = REPOSITORY / "docs"
EXIT_CODES: Final = (
    (0, "the question is answered, and the verdict is positive"),
    (1, "a negative verdict: it does not fit, breaks, or is impossible"),
    (2, "usage: an argument is wrong or missing; one line says how to fix it"),
    (3, "an expected failure: an unknown name, a file that cannot be read, a network that does not answer"),
    (4, "not checked: neither yes nor no, because too little was read to judge, such as the shape of a new model"),
    (70, "a bug; the traceback is printed"),
    (130, "interrupted with Ctrl-C"),
)
MENU: Final = {
    "Start": ("index.md", "start.md"),
    "Tutorials": ("tutorials/1-rent-or-buy.md", "tutorials/2-bring-up.md"),
    "Guides": (
        "guides/which-accelerator.md",
        "guides/preflight.md",
        "guides/measure.md",
        "guides/audit.md",
        "guides/python.md",
    ),
    "Gateway": ("gateway/run.md", "gateway/how-it-decides.md"),
    "Reference": (
        "reference/commands.md",
        "reference/plan-file.md",
        "reference/fleet-file.md",
        "reference/metrics.md",
        "reference/environment.md",
        "reference/glossary.md",
    ),
    "Method": (
        "methodology/memory.md",
        "methodology/speed.md",
        "methodology/simulation.md",
        "methodology/power.md",
        "methodology/plan.md",
    ),
    "How wrong it is": ("evidence.md", "comparison.md"),
    "Help": ("troubleshooting.md",),
    "Project": ("architecture.md", "decisions.md"),
}
"""Pages of the site by section, in reading order."""
_MIN_SHARED: Final = 3
"""An option that as many commands have, in the same words, stands once at the top of the page."""


def commands_page() -> str:
    """Return the page with the options of each command; those that several commands share stand once."""
    commands = [entry for entry in commands_and_groups(app, "penstock") if not isinstance(entry[1], DeclaredGroup)]
    counts = Counter(_row(parameter) for _, command in commands for parameter in command.params)
    shared = {row for row, count in counts.items() if count >= _MIN_SHARED}
    lines = [
        "# Commands",
        "",
        "Generated from the commands by `make docs`. `penstock COMMAND --help` also has examples.",
        "[Exit codes and variables](environment.md).",
        "",
        "## Options that several commands share",
        "",
        *{row.split(maxsplit=2)[1]: row for row in reversed(counts) if row in shared}.values(),
    ]
    for name, command in commands:
        lines += ["", f"## {name}", "", (command.help or "").split("\n\n")[0].replace("\n", " "), ""]
        lines += [_row(parameter) for parameter in command.params if _row(parameter) not in shared]
        if also := [_name(parameter) for parameter in command.params if _row(parameter) in shared]:
            lines.append(f"- Also {', '.join(also)}.")
    return "\n".join(lines).rstrip() + "\n"


def commands_and_groups(group: DeclaredGroup, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """List the commands below a group, and the groups, each before its commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield f"{prefix} {name}", command
        if isinstance(command, DeclaredGroup):
            yield from commands_and_groups(command, f"{prefix} {name}")
        elif isinstance(command, CommandWithActions):
            for action, below in command.actions.items():
                yield f"{prefix} {name} {action}", below


def _row(parameter: click.Parameter) -> str:
    meaning = (getattr(parameter, "help", None) or "").replace("\n", " ")
    default = parameter.default
    if parameter.required:
        meaning += " Required."
    elif not isinstance(default, bool) and isinstance(default, str | int | float):
        meaning += f" Default: `{default}`."
    return f"- {_name(parameter)} {meaning.strip()}"


def _name(parameter: click.Parameter) -> str:
    is_flag = isinstance(parameter, click.Option)
    return f"`{parameter.opts[0]}`" if is_flag else f"`{(parameter.name or '').upper()}`"


def llms_text(pages: dict[Path, str]) -> str:
    """Return llms.txt: one line per page, with its title. `pages` are pages that are generated in the same run."""
    lines = [
        "# Penstock",
        "",
        "> Which AMD or NVIDIA GPUs serve an LLM, how fast, for how much, and will it start?",
        "",
        "Every command takes --json. It exits 0 (yes), 1 (no), 2 (usage), 3 (expected failure) or 4 (not checked).",
    ]
    for section, names in MENU.items():
        lines += ["", f"## {section}", ""]
        for name in names:
            path = DOCS / name
            text = pages.get(path) or path.read_text(encoding="utf-8")
            title = re.search(r"^# (.+)$", text, re.MULTILINE)
            lines.append(f"- [{title[1] if title else name}]({name})")
    return "\n".join(lines) + "\n"


def reference_pages() -> dict[Path, str]:
    """Return the generated pages by path."""
    pages = {
        DOCS / "reference" / "commands.md": commands_page(),
        DOCS / "reference" / "plan-file.md": plan_keys_page(),
        DOCS / "reference" / "fleet-file.md": fleet_keys_page(),
        DOCS / "reference" / "metrics.md": metrics_reference(),
        DOCS / "reference" / "environment.md": environment_page(EXIT_CODES),
    }
    return {**pages, DOCS / "llms.txt": llms_text(pages)}
