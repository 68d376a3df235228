"""Finds the official image for an accelerator, and reads release, platform and ROCm release from an image's name."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from penstock.fleet.release import Release
from penstock.fleet.serving_engines import ServingEngine

_VERSION: Final = r"v?(\d+\.\d+\.\d+(?:\.?post\d+|rc\d+)?)"
_TAGGED: Final = re.compile(
    r"(?:lmsysorg/sglang:|rocm/sgl-dev:|vllm/vllm-openai(?:-rocm)?:|nvcr\.io/nvidia/tensorrt-llm/release:"
    rf"|rocm/atom-dev:(?:vllm|sglang)-){_VERSION}(?:[-_].*)?"
)
"""Names of images that begin their tag with a release. The name of a toolkit may follow the release in the tag."""
_NAMED_IN_TAG: Final = re.compile(rf"rocm/[\w.-]+:.*?(?:vllm_?|sgl-dev-|atom){_VERSION}(?:[._-].*)?")
"""AMD's images, which name the engine before its release: `rocm/vllm:rocm7.0.0_vllm_0.11.2_20251210`."""
_REGISTRY: Final = re.compile(r"^(?:docker\.io|index\.docker\.io|registry-1\.docker\.io)/")
_ROCM_WORD: Final = re.compile(r"rocm(\d)(\d)(\d)(?!\d)|rocm(\d+(?:\.\d+)+)")

_ATOM_IMAGES: Final[Mapping[str, str]] = {
    "atom": "rocm/atom-dev:latest",
    "vllm-atom": "rocm/atom-dev:vllm-latest",
    "sglang-atom": "rocm/atom-dev:sglang-latest",
}
"""Images that ATOM's README and recipes name. Each is the newest nightly build."""


def image_release(image: str | None) -> Release | None:
    """Return the engine release that the tag of a vendor's image names.

    Return None for other images, `latest` and nightly builds without a release.
    """
    name = _REGISTRY.sub("", image or "")
    match = _TAGGED.fullmatch(name) or _NAMED_IN_TAG.fullmatch(name)
    return Release(match[1]) if match else None


def image_platform(image: str | None) -> Literal["rocm", "cuda"] | None:
    """Return the platform for which an engine's image is built. Return None for an unknown image."""
    name, _, tag = _REGISTRY.sub("", image or "").partition(":")
    if name == "vllm/vllm-openai-rocm" or name.startswith("rocm/"):
        return "rocm"
    if name == "lmsysorg/sglang":
        return "rocm" if "rocm" in tag else "cuda"
    return "cuda" if name in {"vllm/vllm-openai", "nvcr.io/nvidia/tensorrt-llm/release"} else None


def official_image(engine: ServingEngine, version: Release, vendor: str, chip: str) -> str | None:
    """Return the official image for an accelerator, or None if there is no such image.

    SGLang has one ROCm image per chip. ATOM's plug-ins have one image each, whose tag names no release.
    """
    if engine in _ATOM_IMAGES:
        return _ATOM_IMAGES[engine] if vendor == "amd" else None
    if engine == "trtllm":
        return f"nvcr.io/nvidia/tensorrt-llm/release:{version}" if vendor == "nvidia" else None
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
    """Return the ROCm release that an official image contains, or None if the release is unknown.

    For an image newer than all known images, return the newest known ROCm release, because the image contains at least
    that release.
    """
    if image is None:
        return None
    image = _REGISTRY.sub("", image)
    if image.startswith("vllm/vllm-openai-rocm:"):
        found = [(Release(since), rocm) for since, rocm in table["vllm"].items() if since != "last_read"]
        held = [rocm for since, rocm in sorted(found, key=lambda pair: pair[0]) if since <= version]
        return held[-1] if held else None
    word = _ROCM_WORD.search(image.partition(":")[2])
    return None if word is None else word[4] or ".".join(word.groups()[:3])


def newest_rocm(table: Mapping[str, Any]) -> Release:
    """Return the newest ROCm release of which an image was read."""
    words = (
        found[4] or ".".join(found.groups()[:3]) for tag in table["atom"].values() for found in _ROCM_WORD.finditer(tag)
    )
    bases = (rocm for since, rocm in table["vllm"].items() if since != "last_read")
    return max(Release(text) for text in (*words, *bases))


def released_image(engine: ServingEngine, version: Release, table: Mapping[str, Any]) -> str | None:
    """Return the image that is known to hold exactly this release of ATOM's server, or None."""
    tags = table["atom"] if engine == "atom" else {}
    return next((str(image) for release, image in tags.items() if Release(release) == version), None)


def floating_tag(image: str | None) -> bool:
    """Return whether the image's tag names the newest build instead of a release."""
    return image is not None and image.endswith("latest")
