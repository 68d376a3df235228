"""Renders the facts of a host, and defines the JSON document of `doctor --json`."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from penstock.preflight.facts.host_readings import Host, HostDevices, HostFact
from penstock.preflight.rules.fact_names import VOCABULARY
from penstock.report.drawing.json_document import at

_ROCM: Final = ("rocm", "mec_firmware")
"""Facts that only hosts with AMD devices have."""


def unknown_facts(host: Host) -> dict[str, str]:
    """Return the facts that rules use and that no reading states, with their meaning."""
    names = {name.removeprefix("host."): fact.question for name, fact in VOCABULARY.items() if name.startswith("host.")}
    other_vendor = bool(host.devices) and not any(one.name.startswith("AMD") for one in host.devices)
    left_out = {*host.stated, *(_ROCM if other_vendor else ())}
    return {name: question for name, question in names.items() if name not in left_out}


class HostDocument(TypedDict):
    """What a host has under its engine."""

    schema: Literal["penstock.host/1"]
    devices: Annotated[list[HostDevices], at("host.devices")]
    facts: Annotated[list[HostFact], at("host.facts")]
    driver: Annotated[HostFact | None, at("host.driver")]
    packages: Annotated[dict[str, str], at("host.packages")]
    unknown: Annotated[dict[str, str], at(lambda answer: unknown_facts(answer.host))]


def render_host(host: Host, missing: Sequence[str]) -> RenderableType:
    """Draw the devices, the facts with the reading that states each, and what is not known."""
    named = [f"{one.count} x {one.name} ({one.accelerator or 'not in the catalog'})" for one in host.devices]
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(overflow="fold")
    for fact in (*host.facts, *(() if host.driver is None else (host.driver,))):
        grid.add_row(Text(f"  {fact.name}", style="dim"), fact.value, Text(fact.reading, style="dim"))
    if host.packages:
        grid.add_row(
            Text("  packages", style="dim"), ", ".join(f"{name} {found}" for name, found in host.packages.items())
        )
    pieces: list[RenderableType] = [Text(", ".join(named) or "No accelerator was found.", style="bold"), grid]
    pieces += [
        Padding(Text(f"not known: {name} ({question}); add --host {name}=...", style="dim"), (0, 0, 0, 2))
        for name, question in unknown_facts(host).items()
    ]
    if missing:
        pieces.append(Text(f"  not installed here: {', '.join(missing)}", style="dim"))
    pieces += _next_step(host)
    return Group(*pieces)


def _next_step(host: Host) -> list[Text]:
    """Say what to ask next. Of several kinds of devices, one command each; without a known device, none is named."""
    known = [f"{one.accelerator}:{one.count}" for one in host.devices if one.accelerator is not None]
    lines = [Text(f"  penstock preflight MODEL --on {target} --host here", style="green") for target in known]
    if len(known) > 1:
        return [Text("\nThe devices differ, and a replica has devices of one kind:"), *lines]
    if known:
        return [Text(), Text(lines[0].plain.strip(), style="green")]
    return [Text("\nName the accelerator yourself: penstock preflight MODEL --on ACCELERATOR:COUNT", style="green")]
