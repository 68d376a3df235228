"""Learns a release of an engine from a wheel or an installed package."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Final

from penstock.errors import CatalogError, DeploymentError, UsageError
from penstock.fleet.release import Release
from penstock.preflight.packs.cited_lines import shipped_marks, standings
from penstock.preflight.packs.pack import LEARNABLE, Pack
from penstock.preflight.packs.release_source import FolderSource, ReleaseSource, WheelSource
from penstock.preflight.packs.release_tables import ReleaseTables
from penstock.preflight.packs.sglang_release import read_sglang
from penstock.preflight.packs.vllm_release import read_vllm
from penstock.preflight.rules._rule_files import load_rules

_READERS: Final[Mapping[str, Callable[[ReleaseSource], ReleaseTables]]] = {"vllm": read_vllm, "sglang": read_sglang}
_WHEEL: Final = re.compile(r"(vllm|sglang)-([^-]+)(?:-.+)?\.whl")
_METADATA: Final = re.compile(r"(vllm|sglang)-([^-]+)\.dist-info")
_MIN_FLAGS: Final = 50
"""Every release of vLLM and SGLang that was read has more flags than this."""


def learn_wheel(wheel: Path, today: date) -> Pack:
    """Read a wheel on disk. Its name says which engine and release it is."""
    named = _WHEEL.fullmatch(wheel.name)
    if named is None:
        raise UsageError(
            f"'{wheel.name}' is not the name of a wheel of {' or '.join(LEARNABLE)}, as in vllm-0.33.0-...whl"
        )
    if not wheel.is_file():
        raise UsageError(f"{wheel} is not a file; give the path of a wheel, or `vllm==0.33.0` to download it")
    return _learn(named[1], _release(named[2], wheel.name), WheelSource(wheel), wheel.name, _sha256(wheel), today)


def learn_folder(folder: Path, today: date) -> Pack:
    """Read a package that is installed in an environment.

    `folder` is the package itself, its site-packages, or the environment.
    """
    found = [
        (package, metadata)
        for site in (folder.parent, folder, *sorted(folder.glob("lib/python*/site-packages")))
        for metadata in sorted(site.glob("*.dist-info"))
        if (package := _METADATA.fullmatch(metadata.name)) is not None and (site / package[1]).is_dir()
        if site != folder.parent or folder.name == package[1]
    ]
    if len(found) != 1:
        what = "neither vllm nor sglang is" if not found else "both vllm and sglang are"
        raise UsageError(f"{what} installed in {folder}; name the package's own folder, as in .../site-packages/vllm")
    package, metadata = found[0]
    source = FolderSource(metadata.parent, package[1])
    return _learn(package[1], _release(package[2], metadata.name), source, f"installed {package[1]}", "", today)


def _learn(engine: str, release: Release, source: ReleaseSource, label: str, digest: str, today: date) -> Pack:
    tables = _READERS[engine](source)
    if len(tables.flags) < _MIN_FLAGS or not tables.architectures:
        raise CatalogError(
            f"{label}: {len(tables.flags)} flags and {len(tables.architectures)} architectures were found, too few for "
            f"{engine}; its source code may be arranged in a way that this version does not know"
        )
    return Pack(
        engine=engine,
        release=release,
        learned_on=today.isoformat(),
        source=label,
        source_sha256=digest,
        tables=tables,
        rules=standings(load_rules(), engine, release, source, shipped_marks()),
    )


def _release(text: str, name: str) -> Release:
    try:
        return Release(text)
    except DeploymentError as error:
        raise UsageError(f"{name[:80]}: {error}") from None


def _sha256(file: Path) -> str:
    digest = sha256()
    with file.open("rb") as opened:
        while block := opened.read(2**20):
            digest.update(block)
    return digest.hexdigest()
