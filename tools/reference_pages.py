"""Writes the reference pages of the documentation from the code: commands, files, metrics, environment, llms.txt."""

import os
import re
import subprocess
import sys
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
REPORTS: Final = "Reports"
"""Section of pages with figures and tables of measurements; they are not part of the manual."""
_LISTED: Final = {
    "Start": ("index.md", "start/install.md", "start/ten-minutes.md", "questions.md", "reference/glossary.md"),
    "Tutorials": (
        "tutorials/1-h200-or-mi355x.md",
        "tutorials/2-from-plan-to-endpoint.md",
        "tutorials/3-page-for-finance.md",
        "tutorials/4-notebook-on-agent-traffic.md",
    ),
    "How to": (
        "how-to.md",
        "preflight.md",
        "preflight-rules.md",
        "fp8.md",
        "audit.md",
        "guide.md",
        "bench.md",
        "calibrate.md",
        "measured-loop.md",
        "run-gateway.md",
        "bill.md",
        "emulator.md",
        "agents.md",
    ),
    "Reference": (
        "reference/commands.md",
        "reference/plan-file.md",
        "reference/fleet-file.md",
        "reference/metrics.md",
        "reference/environment.md",
        "api.md",
        "help.md",
        "versions.md",
    ),
    "Explanation": (
        "evidence.md",
        "methodology.md",
        "methodology/memory.md",
        "methodology/speed.md",
        "methodology/simulation.md",
        "methodology/power.md",
        "methodology/plan.md",
        "routing.md",
        "overload.md",
        "gateway.md",
        "shared-devices.md",
    ),
    REPORTS: (
        "accuracy.md",
        "memory-accuracy.md",
        "claims.md",
        "articles.md",
        "data.md",
        "disaggregation.md",
        "reports/front-door-results.md",
        "reports/plan-results.md",
        "reports/preflight-results.md",
        "reports/routing-results.md",
        "reports/overload-results.md",
        "reports/gateway-results.md",
        "scale.md",
        "reports/guide-results.md",
        "reports/real-vllm-results.md",
        "reports/export-results.md",
    ),
    "Help": (
        "support/troubleshooting.md",
        "support/faq.md",
        "support/known-weaknesses.md",
        "comparison.md",
    ),
    "Project": ("architecture.md",),
}
"""Pages by section, in reading order. A page that is not listed is an explanation."""


def menu() -> dict[str, tuple[str, ...]]:
    """Return the pages of the site by section, in reading order."""
    listed = {name for names in _LISTED.values() for name in names}
    found = {path.name for path in DOCS.glob("*.md") if not path.name.endswith(".template.md")}
    return {**_LISTED, "Explanation": (*_LISTED["Explanation"], *sorted(found - listed))}


def commands_page() -> str:
    """Return the page with a table of flags for each command."""
    lines = [
        "# Commands",
        "",
        "Generated from the commands by `make docs`. `penstock COMMAND --help` prints the same.",
        "",
    ]
    lines += ["Exit codes and variables: [environment](environment.md)."]
    for name, command in commands_and_groups(app, "penstock"):
        if isinstance(command, DeclaredGroup):
            continue
        lines += ["", f"## {name}", "", (command.help or "").split("\n\n")[0].replace("\n", " "), ""]
        rows = [_row(parameter) for parameter in command.params]
        if rows:
            lines += ["| Argument | Meaning |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


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
    is_flag = isinstance(parameter, click.Option)
    name = f"`{parameter.opts[0]}`" if is_flag else f"`{(parameter.name or '').upper()}`"
    meaning = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    default = parameter.default
    if parameter.required:
        meaning += " Required."
    elif not isinstance(default, bool) and isinstance(default, str | int | float):
        meaning += f" Default: `{default}`."
    return f"| {name} | {meaning.strip()} |"


def plan_page() -> str:
    """Return the page with the keys of a plan file, and a commented one."""
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "plan", "--init"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "120"},
    ).stdout.rstrip()
    return plan_keys_page(shown)


def llms_text(pages: dict[Path, str]) -> str:
    """Return llms.txt: one line per page, with its title. `pages` are pages that are generated in the same run."""
    lines = [
        "# Penstock",
        "",
        "> Which AMD or NVIDIA GPUs serve an LLM, how fast, for how much, and will it start?",
        "",
        "Every command takes --json. It exits 0 (yes), 1 (no), 2 (usage), 3 (expected failure) or 4 (not checked).",
    ]
    for section, names in menu().items():
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
        DOCS / "reference" / "plan-file.md": plan_page(),
        DOCS / "reference" / "fleet-file.md": fleet_keys_page(),
        DOCS / "reference" / "metrics.md": metrics_reference(),
        DOCS / "reference" / "environment.md": environment_page(EXIT_CODES),
    }
    return {**pages, DOCS / "llms.txt": llms_text(pages)}
