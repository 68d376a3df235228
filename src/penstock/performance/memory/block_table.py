"""Counts the pages that a vLLM block table takes for one request: all tokens, or a window plus the tokens in flight."""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Layers that share a block table: the tokens they keep, and the tokens per page."""

    window: int | None
    """Window in tokens. None keeps all tokens."""
    page_tokens: int
    pages: tuple[int, ...]
    """Bytes of a page, one entry for each cache of the layers on the device."""

    def blocks(self, tokens: int, in_flight: int) -> int:
        """Return the maximum pages of one request while `in_flight` of its tokens are being computed."""
        if self.window is None:
            return ceil(tokens / self.page_tokens)
        # One more, because a window does not need to begin at a page boundary.
        return ceil(min(self.window - 1 + in_flight, tokens) / self.page_tokens) + 1
