"""Finds the official image for an accelerator, and reads release, platform and ROCm release from an image's name."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from penstock.fleet.engines import EngineName
from penstock.fleet.release import Release

_TAGGED: Final = re.compile(
    r"(?:lmsysorg/sglang|vllm/vllm-openai(?:-rocm)?):v?(\d+\.\d+\.\d+(?:\.?post\d+|rc\d+)?)(?:-.*)?"
)
"""Names of official images that have a release in their tag. A toolkit may follow the release."""


def image_release(image: str | None) -> Release | None:
    """Return the engine release in an official image. None for other images, `latest` and nightly builds."""
    match = _TAGGED.fullmatch(image or "")
    return Release(match[1]) if match else None


def image_platform(image: str | None) -> Literal["rocm", "cuda"] | None:
    """Return the platform for which an engine's image is built. None for an unknown image."""
    name, _, tag = (image or "").partition(":")
    if name in {"vllm/vllm-openai-rocm", "rocm/vllm", "rocm/vllm-dev", "rocm/sgl-dev"}:
        return "rocm"
    if name == "lmsysorg/sglang":
        return "rocm" if "rocm" in tag else "cuda"
    return "cuda" if name == "vllm/vllm-openai" else None


def official_image(engine: EngineName, version: Release, vendor: str, chip: str) -> str | None:
    """Return the official image for an accelerator. None if there is none. SGLang has one ROCm image per chip."""
    if engine == "vllm":
        names = {"nvidia": "vllm/vllm-openai", "amd": "vllm/vllm-openai-rocm"}
        # Before 0.14 vLLM published no image for ROCm.
        missing = vendor == "amd" and version < Release("0.14.0")
        return f"{names[vendor]}:v{version}" if vendor in names and not missing else None
    if vendor == "nvidia":
        return f"lmsysorg/sglang:v{version}"
    suffix = {"gfx942": "mi30x", "gfx950": "mi35x"}.get(chip)
    runtime = "rocm720" if version >= Release("0.5.10") else "rocm700"
    return f"lmsysorg/sglang:v{version}-{runtime}-{suffix}" if suffix else None


def rocm_of_image(image: str | None, version: Release, table: Mapping[str, Any]) -> str | None:
    """Return the ROCm release in an official image. None if it is unknown.

    For images newer than the known images, it is the newest known ROCm release. These images have at least that.
    """
    if image is None:
        return None
    if image.startswith("vllm/vllm-openai-rocm:"):
        found = [(Release(since), rocm) for since, rocm in table["vllm"].items() if since != "last_read"]
        held = [rocm for since, rocm in sorted(found, key=lambda pair: pair[0]) if since <= version]
        return held[-1] if held else None
    word = next((word for word in image.split("-") if word.startswith("rocm") and word[4:].isdecimal()), None)
    return None if word is None else ".".join(word[4:])
