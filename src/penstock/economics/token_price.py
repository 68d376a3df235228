"""Computes prices per million input and output tokens, according to the device time that each kind of token takes."""

from dataclasses import dataclass
from math import inf
from typing import Final

MTOK: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrice:
    """Levelised price per million tokens: discounted dollars divided by discounted tokens."""

    input_usd_per_mtok: float | None
    output_usd_per_mtok: float | None
    """Price of output tokens. This price and the price of input tokens are both None if the split of device time
    between prefill and decode is unknown."""
    blended_usd_per_mtok: float
    """Total cost per million tokens, with input and output tokens counted alike."""


def token_price(usd: float, *, input_tokens: float, output_tokens: float, prefill_fraction: float | None) -> TokenPrice:
    """Divide a bill between input and output tokens, by the share of device time spent on prefill.

    Input tokens pay for the share of prefill, and output tokens pay for the rest. The caller chooses how the share of
    prefill is computed. By default the share is device-seconds of prefill divided by all busy device-seconds. Idle time
    and engineers are divided in the same proportion as busy time.
    """
    total = input_tokens + output_tokens
    blended = usd / total * MTOK if total else inf
    if prefill_fraction is None:
        return TokenPrice(input_usd_per_mtok=None, output_usd_per_mtok=None, blended_usd_per_mtok=blended)
    return TokenPrice(
        input_usd_per_mtok=usd * prefill_fraction / input_tokens * MTOK if input_tokens else inf,
        output_usd_per_mtok=usd * (1 - prefill_fraction) / output_tokens * MTOK if output_tokens else inf,
        blended_usd_per_mtok=blended,
    )
