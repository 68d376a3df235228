"""Parses what tools print about a host (rocminfo, amd-smi, nvidia-smi, installed packages) into host facts.

A reading that is missing, cut or not understood gives no fact. No value leaves this module that is not a short version
number, a known word or a printable name.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

MAX_CHARACTERS: Final = 500_000
"""Number of characters of one reading that are parsed."""
_VERSION: Final = r"([0-9][0-9A-Za-z.]{0,23})"
_NAME: Final = re.compile(r"[\w .,/()+-]{1,80}")
_PACKAGES: Final = (
    "vllm",
    "sglang",
    "torch",
    "triton",
    "amd-aiter",
    "aiter",
    "flashinfer-python",
    "sgl-kernel",
    "transformers",
)
_ENGINES: Final = ("vllm", "sglang")
_ACCELERATORS: Final[tuple[tuple[str, str], ...]] = (
    (r"MI300X", "mi300x"),
    (r"MI308X", "mi308x"),
    (r"MI325X", "mi325x"),
    (r"MI350X", "mi350x"),
    (r"MI355X", "mi355x"),
    (r"MI250X", "mi250x"),
    (r"MI210\b", "mi210"),
    (r"7900 XTX", "rx_7900_xtx"),
    (r"R9700", "r9700"),
    (r"\bGB300", "gb300"),
    (r"\bGB200", "gb200"),
    (r"\bGH200", "gh200"),
    (r"\bB300", "b300_sxm"),
    (r"\bB200", "b200_sxm"),
    (r"H200 NVL", "h200_nvl"),
    (r"\bH200", "h200_sxm"),
    (r"H100 NVL", "h100_nvl"),
    (r"H100 PCIe", "h100_pcie"),
    (r"\bH100.*HBM3", "h100_sxm"),
    (r"\bH800.*HBM3|\bH800$", "h800_sxm"),
    (r"\bH20-3e", "h20_3e"),
    (r"\bH20$", "h20"),
    (r"A100-SXM4-80GB", "a100_80gb_sxm"),
    (r"A100 80GB PCIe", "a100_80gb_pcie"),
    (r"L40S", "l40s"),
    (r"RTX 4090", "rtx_4090"),
    (r"RTX PRO 6000 Blackwell Server", "rtx_pro_6000_server"),
)
"""Names that drivers print, and the accelerators of the catalog. The first that is found counts."""
_COMPUTE_UNITS: Final = ((r"MI3(?:00|25)X", 304), (r"MI35[05]X", 256))
"""Compute units of whole devices that can be partitioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFact:
    """A fact about a host, and the reading that states it."""

    name: str
    value: str
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Devices of one kind: the name that the driver prints, the accelerator of the catalog, and their number."""

    name: str
    accelerator: str | None
    """Id in the catalog. None if the catalog has no accelerator of this name."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The facts of a host that rules use, its devices, its driver and the packages of its engine."""

    devices: tuple[HostDevices, ...]
    facts: tuple[HostFact, ...]
    driver: HostFact | None
    packages: Mapping[str, str]

    @property
    def stated(self) -> Mapping[str, str]:
        """The facts by name, as `preflight --host` takes them."""
        return {fact.name: fact.value for fact in self.facts}

    @property
    def target(self) -> str | None:
        """The devices as `--on` takes them, or None if there are none, several kinds, or unknown ones."""
        known = [one for one in self.devices if one.accelerator is not None]
        return f"{known[0].accelerator}:{known[0].count}" if len(self.devices) == len(known) == 1 else None


def parse_host(readings: Mapping[str, str]) -> Host:
    """Parse readings, by the name of the command or file that they come from."""
    texts = {name: text[:MAX_CHARACTERS] for name, text in readings.items()}
    packages = _list_packages(texts.get("packages", ""))
    found: list[HostFact] = []
    for name, sources in _FACTS.items():
        for reading, parse in sources:
            value = parse(texts[reading]) if reading in texts else None
            if value is not None:
                found.append(HostFact(name=name, value=value, reading=reading))
                break
    engine = next((package for package in _ENGINES if package in packages), None)
    if "triton" in packages and engine is not None:
        found.append(HostFact(name="triton", value=packages["triton"], reading="packages"))
    if engine is None:
        # Without an engine, this Python is not the engine's. Outside a container, this ROCm is not either.
        inside = any(fact.name == "install" and fact.value == "docker" for fact in found)
        found = [fact for fact in found if fact.name != "python" and (inside or fact.name != "rocm")]
    elif not any(fact.name == "install" for fact in found):
        found.append(HostFact(name="install", value="wheel", reading="packages"))
    return Host(
        devices=_devices(texts), facts=tuple(found), driver=_driver(texts), packages=dict(sorted(packages.items()))
    )


def _match_first(pattern: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)

    def parse(text: str) -> str | None:
        found = compiled.search(text)
        return None if found is None else found[1]

    return parse


def _lowest_mec(text: str) -> str | None:
    """Return the oldest firmware of the compute queues, of all devices."""
    versions = re.findall(r"FW_ID: CP_MEC1\s+FW_VERSION: (\d{1,6})\b", text)
    return min(versions, key=int) if versions else None


def _switch(text: str) -> str | None:
    return {"0": "no", "1": "yes", "2": "yes"}.get(text.strip())


_FACTS: Final[Mapping[str, tuple[tuple[str, Callable[[str], str | None]], ...]]] = {
    "rocm": (
        ("/opt/rocm/.info/version", _match_first(r"\A\s*([0-9]+(?:\.[0-9]+){1,3})")),
        ("amd-smi version", _match_first(r"ROCm version: ([0-9]+(?:\.[0-9]+){1,3})")),
    ),
    "mec_firmware": (("amd-smi firmware", _lowest_mec),),
    "numa_balancing": (("/proc/sys/kernel/numa_balancing", _switch),),
    "python": (("python", _match_first(r"\A\s*([0-9]+\.[0-9]+)(?:\.|\s|\Z)")),),
    "install": (
        ("container", _match_first(r"\A\s*(docker)\s*\Z")),
        ("install", _match_first(r"\A\s*(wheel|source)\s*\Z")),
    ),
}
"""For each fact, the readings that state it. The first that does counts."""


def _driver(texts: Mapping[str, str]) -> HostFact | None:
    sources = (
        ("/sys/module/amdgpu/version", rf"\A\s*{_VERSION}\s*\Z"),
        ("amd-smi version", rf"amdgpu version: {_VERSION}"),
        ("nvidia-smi", rf"Driver Version: {_VERSION}"),
        ("rocminfo", rf"ROCk module version {_VERSION} is loaded"),
    )
    for reading, pattern in sources:
        value = _match_first(pattern)(texts.get(reading, ""))
        if value is not None:
            return HostFact(name="driver", value=value, reading=reading)
    return None


def _list_packages(text: str) -> dict[str, str]:
    lines = (re.fullmatch(rf"([A-Za-z0-9_.-]{{1,60}})=={_VERSION}(?:\+[\w.]{{1,40}})?", line) for line in text.split())
    named = {found[1].lower().replace("_", "-"): found[2] for found in lines if found is not None}
    return {name: version for name, version in named.items() if name in _PACKAGES}


def _devices(texts: Mapping[str, str]) -> tuple[HostDevices, ...]:
    names = [*_rocm_devices(texts.get("rocminfo", "")), *_cuda_devices(texts.get("nvidia-smi -L", ""))]
    counts = Counter(name for name in names if _NAME.fullmatch(name))
    return tuple(HostDevices(name=name, accelerator=_accelerator(name), count=count) for name, count in counts.items())


def _rocm_devices(text: str) -> list[str]:
    """Return the marketing name of every agent that is a GPU."""
    agents: list[dict[str, str]] = []
    for line in text.splitlines():
        field, colon, value = line.partition(":")
        if not colon and field.strip().startswith("Agent "):
            agents.append({})
        elif agents:
            agents[-1].setdefault(field.strip(), value.strip())
    return [_whole_or_partition(agent) for agent in agents if agent.get("Device Type") == "GPU"]


def _whole_or_partition(agent: Mapping[str, str]) -> str:
    """Return the name of an agent. A compute partition (CPX, QPX, DPX) has the name of the whole device."""
    name, units = agent.get("Marketing Name", ""), agent.get("Compute Unit", "")
    whole = next((count for pattern, count in _COMPUTE_UNITS if re.search(pattern, name)), None)
    partition = whole is not None and units.isdecimal() and len(units) <= 4 and int(units) <= whole // 2
    return f"{name} partition of {units} CUs" if partition else name


def _cuda_devices(text: str) -> list[str]:
    """Return the devices that nvidia-smi lists. A device with MIG slices is replaced by its slices."""
    found: list[str] = []
    whole: str | None = None
    for line in text.splitlines():
        if (device := re.match(r"GPU \d+: (.*?) \(UUID: ", line)) is not None:
            whole = device[1]
            found.append(whole)
        elif whole is not None and (part := re.match(r"\s+MIG (\S{1,20})\s+Device", line)) is not None:
            if found[-1] == whole:
                found.pop()
            found.append(f"{whole} MIG {part[1]}")
    return found


def _accelerator(name: str) -> str | None:
    if re.search(r" MIG | partition of ", name):
        return None  # the catalog has whole devices only
    return next((known for pattern, known in _ACCELERATORS if re.search(pattern, name)), None)
