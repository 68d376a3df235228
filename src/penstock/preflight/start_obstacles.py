"""Finds obstacles that keep an engine from starting and that need no shape of the model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from penstock.catalog.accelerator import Accelerator
from penstock.fleet import Parallelism
from penstock.fleet.release import Release
from penstock.preflight.facts.situation import Launch
from penstock.preflight.launch.images import image_platform
from penstock.preflight.launch.release_flags import FlagFinding
from penstock.preflight.predictions.architecture_support import ArchitectureSupport

ObstacleKind = Literal[
    "architecture",
    "memory",
    "context",
    "requests",
    "split",
    "nodes",
    "kernel",
    "backend",
    "flag",
    "model",
    "image",
    "line",
    "devices",
]
_SEVERAL_MACHINES: Final = (
    "nnodes",
    "distributed-executor-backend",
    "data-parallel-address",
    "data-parallel-backend",
    "dist-init-addr",
)
"""Flags that connect the nodes of a replica."""
_PLATFORMS: Final = {"amd": "rocm", "nvidia": "cuda"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartObstacle:
    """An obstacle that keeps the engine from starting and that no rule describes."""

    kind: ObstacleKind
    text: str


def architecture_obstacles(support: ArchitectureSupport, engine: str, version: Release) -> Iterator[StartObstacle]:
    """Yield an obstacle if the release is older than the architecture, or if the engine refuses the architecture."""
    if support.too_new:
        other = support.registered != support.architecture
        config = f", which this config calls {support.architecture}" if other else ""
        text = f"{engine} {version} does not know {support.registered}{config}"
        yield StartObstacle(kind="architecture", text=f"{text}; the first release that knows it is {support.since}")
    if support.refused:
        text = f"{engine} {version} does not register {support.registered}, so it refuses it"
        yield StartObstacle(kind="architecture", text=f"{text}; use another engine, or a later release")


def command_obstacles(launch: Launch, accelerator: Accelerator, split: Parallelism) -> Iterator[StartObstacle]:
    """Yield the obstacles in a command: nodes that it does not connect, broken lines, hidden devices, a wrong image."""
    connected = launch.flag(*_SEVERAL_MACHINES) is not None
    largest = accelerator.node.largest
    if split.devices > largest and not connected:
        machines = -(-split.devices // largest)
        text = f"{split.devices} devices are {machines} machines of {largest}, but this command starts one"
        yield StartObstacle(kind="nodes", text=f"{text}; add --nnodes {machines} and --node-rank on each")
    yield from (StartObstacle(kind="line", text=text) for text in launch.torn)
    seen = launch.visible_devices
    if seen is not None and seen < split.devices and not connected:
        text = f"the command lets the engine see {seen} of the {split.devices} devices that it needs"
        yield StartObstacle(kind="devices", text=text)
    built_for, platform = image_platform(launch.image), _PLATFORMS.get(accelerator.vendor)
    if built_for is not None and platform is not None and built_for != platform:
        text = f"{launch.image} is built for {built_for.upper()}, which {accelerator.id} does not support"
        yield StartObstacle(kind="image", text=text)


def device_obstacles(launch: Launch, split: Parallelism, present: int | None) -> Iterator[StartObstacle]:
    """Yield an obstacle if a launch needs more devices than there are. `present` is the number on each machine."""
    machines = launch.flag("nnodes") or "1"
    there = None if present is None or not machines.isdecimal() else present * int(machines[:4])
    if there is not None and split.devices > there:
        yield StartObstacle(kind="devices", text=f"it starts on {split.devices} devices, and there are {there}")


def flag_obstacles(flags: Iterable[FlagFinding]) -> Iterator[StartObstacle]:
    """Yield an obstacle for each wrong flag that is known to stop the start."""
    yield from (StartObstacle(kind="flag", text=flag.message) for flag in flags if flag.stops and flag.certain)
