"""Renders the answer of `fit` for several models: a table of models for each accelerator."""

from collections.abc import Sequence
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from penstock.performance.residency.shared_devices import DeviceGroup, ModelOnDevice, SharedDevices
from penstock.performance.residency.transition_times import TransitionSeconds
from penstock.report.drawing.comparison_table import Column, sheet
from penstock.units import count_text, format_digits, format_gib

_COLUMNS = (
    Column("model", figures=False),
    Column("weights\nGiB"),
    Column("engine\nGiB"),
    Column("KV\nGiB"),
    Column("KV\ntokens"),
    Column("requests"),
    Column("share of\nmemory"),
    Column("wake from host\ns (P10-P90)"),
    Column("new process\ns (P10-P90)"),
)


class FitTogetherDocument(TypedDict):
    """Which models share a device, and the memory left for their KV caches."""

    schema: Literal["penstock.fit-together/1"]
    models: list[str]
    shared: list[SharedDevices]


def render_together(shared: Sequence[SharedDevices], width: int) -> RenderableType:
    """Draw one block per accelerator."""
    pieces: list[RenderableType] = []
    for one in shared:
        pieces += [_headline(one)]
        for group in one.device_groups:
            members = [model for model in one.models if model.group == group.number]
            pieces += [
                _group_line(one, group),
                sheet(_COLUMNS, [_cells(model) for model in members], width),
                Text(),
            ]
    return Group(*pieces, _footnote(shared))


def _headline(shared: SharedDevices) -> Text:
    name = shared.accelerator + (f" x{shared.devices}" if shared.devices > 1 else "")
    held = count_text(len(shared.models), "model")
    if shared.together:
        return Text(f"{name} holds {held} together.\n", style="bold green")
    text = Text()
    if shared.groups > 1:
        group = "device" if shared.devices == 1 else f"group of {shared.devices} devices"
        text.append(f"{name}: no {group} holds all models; {held} take {shared.groups}.\n", style="bold yellow")
    for name_ in shared.too_large:
        text.append(f"{name_} does not fit on {name}. Ask `penstock fit {name_} --on {shared.accelerator}`.\n", "red")
    return text


def _group_line(shared: SharedDevices, group: DeviceGroup) -> Text:
    place = "Device" if shared.devices == 1 else "Group"
    number = f"{place} {group.number}: " if shared.groups > 1 else ""
    span = f"P10-P90 {format_gib(group.kv_bytes_p10)}-{format_gib(group.kv_bytes_p90)}"
    text = Text(
        f"{number}{format_gib(group.kv_bytes)} GiB ({span}) of {format_gib(shared.device_bytes)} GiB left for KV caches"
    )
    if not group.certain:
        text.append(". Tight: with the P90 of the engines' reserves the models do not fit", style="yellow")
    text.append(".")
    return text


def _cells(model: ModelOnDevice) -> list[str]:
    requests = "no limit" if model.concurrent_requests is None else f"{model.concurrent_requests:,}"
    return [
        model.name,
        format_gib(model.weight_bytes),
        format_gib(model.engine_bytes),
        format_gib(model.kv_bytes),
        f"{model.kv_tokens:,}",
        requests,
        f"{model.memory_fraction:.3f}",
        _seconds(model.wake),
        _seconds(model.start),
    ]


def _seconds(taken: TransitionSeconds | None) -> str:
    if taken is None:
        return "undetermined"
    if taken.low_s == taken.high_s:
        return format_digits(taken.median_s)
    return f"{format_digits(taken.median_s)} ({format_digits(taken.low_s)}-{format_digits(taken.high_s)})"


def _footnote(shared: Sequence[SharedDevices]) -> Text:
    contexts = sorted({model.context_tokens for one in shared for model in one.models})
    tokens = " or ".join(f"{count:,}" for count in contexts)
    tiers = sorted({taken.tier for one in shared for model in one.models if (taken := model.wake) is not None})
    times = f" Times: tier {', '.join(tiers)}, from published times of vLLM on PCIe 4.0." if tiers else ""
    return Text(
        f"The KV caches of one device hold the same number of requests of {tokens} tokens each. Start the engines one "
        "after the other; vLLM takes the share of memory as --gpu-memory-utilization. Engines take turns on the "
        f"device: simulate the load before you rely on speed.{times} See docs/guides/which-accelerator.md.",
        style="dim",
    )
