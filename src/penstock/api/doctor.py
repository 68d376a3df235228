"""Reads what a host has under its engine: `penstock doctor`, and `preflight --host`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.errors import UnreadableFile, UsageError
from penstock.preflight.facts.host_readings import MAX_CHARACTERS, Host, HostDevices, HostFact, parse_host
from penstock.reading.toml import strictly
from penstock.report.preflight.host import HostDocument, render_host

HERE: Final = "here"
"""Value of `--host` that reads this host."""
_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "rocminfo": ("rocminfo",),
    "amd-smi version": ("amd-smi", "version"),
    "amd-smi firmware": ("amd-smi", "firmware"),
    "nvidia-smi": ("nvidia-smi",),
    "nvidia-smi -L": ("nvidia-smi", "-L"),
}
_FILES: Final = ("/opt/rocm/.info/version", "/proc/sys/kernel/numa_balancing", "/sys/module/amdgpu/version")
_INSIDE_A_CONTAINER: Final = ("/.dockerenv", "/run/.containerenv")
_ASK_PYTHON: Final = """
import importlib.metadata as metadata, json, platform
found = {one.metadata["Name"]: one for one in metadata.distributions() if one.metadata["Name"]}
engines = [found[name] for name in ("vllm", "sglang") if name in found]
local = any('"dir_info"' in (one.read_text("direct_url.json") or "") for one in engines)
print(json.dumps({
    "python": platform.python_version(),
    "packages": "\\n".join(f"{name}=={one.version}" for name, one in found.items()),
    "install": ("source" if local else "wheel") if engines else "",
}))
"""
_TIMEOUT_S: Final = 30


@dataclass(frozen=True, kw_only=True)
class SavedHost:
    """A saved host: what `penstock doctor --json` prints."""

    schema: Literal["penstock.host/1"]
    devices: tuple[HostDevices, ...]
    facts: tuple[HostFact, ...]
    driver: HostFact | None
    packages: Mapping[str, str]
    unknown: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, repr=False)
class DoctorAnswer(ApiAnswer):
    """What a host has under its engine."""

    document_type = HostDocument
    host: Host
    missing: tuple[str, ...]
    """Commands that are not installed on this host."""

    @property
    def good(self) -> bool:
        """Return true, because facts have no verdict."""
        return True

    def rows(self) -> list[Row]:
        """Return one row per fact."""
        return [{"fact": fact.name, "value": fact.value, "reading": fact.reading} for fact in self.host.facts]

    def render(self, columns: int) -> RenderableType:
        """Return what `doctor` prints."""
        del columns
        return render_host(self.host, self.missing)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.host.target or "host", [f"{fact.name} {fact.value}" for fact in self.host.facts]


def doctor(*, recorded: Path | None = None, python: str | None = None) -> DoctorAnswer:
    """Read this host, or the outputs that `recorded` holds as one file per command (`rocminfo.txt`).

    `python` is the Python of the environment in which the engine is installed. Default: the one that runs Penstock.
    """
    readings = dict(_read_recorded(recorded) if recorded is not None else _read(python or sys.executable))
    absent = () if recorded is not None else tuple(name for name in _COMMANDS if name not in readings)
    return DoctorAnswer(host=parse_host(readings), missing=tuple(dict.fromkeys(name.split()[0] for name in absent)))


def host_of(text: str) -> Host:
    """Return this host for `here`, or the host that a file of `penstock doctor --json` describes."""
    if text == HERE:
        return doctor().host
    try:
        raw = json.loads(Path(text).read_bytes()[:MAX_CHARACTERS])
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise UsageError(
            f"--host: '{text[:80]}' is not NAME=VALUE, `{HERE}` or a file of `penstock doctor --json` ({reason}); use "
            "`rocm=7.2.3`, for example"
        ) from None
    found = strictly(SavedHost, raw, text[:80])
    return Host(devices=found.devices, facts=found.facts, driver=found.driver, packages=found.packages)


def _read(python: str) -> Iterator[tuple[str, str]]:
    """Yield what the commands and files of this host say. A command that is not installed says nothing."""
    for name, words in _COMMANDS.items():
        if shutil.which(words[0]) is not None and (text := _output(words)) is not None:
            yield name, text
    for name in _FILES:
        try:
            yield name, Path(name).read_text(encoding="utf-8", errors="replace")[:MAX_CHARACTERS]
        except OSError:
            continue
    if any(Path(mark).exists() for mark in _INSIDE_A_CONTAINER):
        yield "container", "docker"
    try:
        asked = json.loads(_output((python, "-c", _ASK_PYTHON)) or "")
    except ValueError:
        raise UsageError(f"'{python[:80]}' is not a Python that runs; give the Python of the engine") from None
    yield from ((name, str(value)) for name, value in asked.items())


def _output(words: Sequence[str]) -> str | None:
    """Return what a command prints, or None if it does not run or takes too long."""
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=_TIMEOUT_S)  # noqa: S603 - no shell; fixed words
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:MAX_CHARACTERS].decode(errors="replace")


def _read_recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the readings in a folder: `rocminfo.txt`, `amd-smi-version.txt`, `packages.txt` and so on."""
    if not folder.is_dir():
        raise UnreadableFile(f"{folder} is not a directory; give the one with the recorded outputs")
    names = (*_COMMANDS, *_FILES, "container", "python", "packages", "install")
    for name in names:
        file = folder / f"{name.strip('/').replace(' ', '-').replace('/', '-')}.txt"
        try:
            yield name, file.read_bytes()[:MAX_CHARACTERS].decode(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnreadableFile(f"{file} cannot be read ({error.strerror})") from None
