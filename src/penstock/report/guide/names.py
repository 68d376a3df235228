"""Names vendors, accelerators and lengths as the reader of a guide writes them."""

from typing import Final

VENDOR_NAMES: Final = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "google": "Google"}
_KILO: Final = 1024
_FORM_FACTORS: Final = ("_sxm", "_server")


def short_name(accelerator: str) -> str:
    """Return an accelerator's id without its form factor."""
    for ending in _FORM_FACTORS:
        accelerator = accelerator.removesuffix(ending)
    return accelerator


def tokens_text(tokens: float) -> str:
    """Format tokens as users write them: 512, 4k for 4,096, 3.5k for 3,500."""
    if tokens >= _KILO and tokens % _KILO == 0:
        return f"{tokens / _KILO:.0f}k"
    return f"{tokens / 1000:.3g}k" if tokens >= _KILO else f"{tokens:.0f}"
