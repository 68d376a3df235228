"""How many pages does a block table of vLLM take for one request? All its tokens, or a window and what is under way."""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Layers that share a block table: the tokens they keep, and how many a page holds."""

    window: int | None
    """None keeps all of them."""
    page_tokens: int
    pages: tuple[int, ...]
    """Bytes of a page, one for each cache of the layers on the device."""

    def blocks(self, tokens: int, in_flight: int) -> int:
        """Pages one request holds at most while `in_flight` of its tokens are being computed."""
        if self.window is None:
            return ceil(tokens / self.page_tokens)
        # One more, because a window need not begin where a page does.
        return ceil(min(self.window - 1 + in_flight, tokens) / self.page_tokens) + 1
