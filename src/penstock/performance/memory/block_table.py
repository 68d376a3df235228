"""Counts the pages of a vLLM block table for one request.

A table keeps all tokens of the request, or only a window of tokens and the tokens in flight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Block table that several layers share: the tokens that it keeps, and the tokens per page."""

    window: int | None
    """Number of tokens in the window that is kept. None if all tokens are kept."""
    page_tokens: int
    pages: tuple[int, ...]
    """Bytes of a page, with one entry for each cache of the layers on the device."""

    def blocks(self, tokens: int, in_flight: int) -> int:
        """Return the maximum number of pages that one request takes.

        The maximum is reached while `in_flight` tokens of the request are being computed.
        """
        if self.window is None:
            return ceil(tokens / self.page_tokens)
        # One more page, because a window does not need to begin at a page boundary.
        return ceil(min(self.window - 1 + in_flight, tokens) / self.page_tokens) + 1


def tokens_of_all_layers(tables: Sequence[BlockTable], page_bytes: int, kv_bytes: int) -> int:
    """Return the tokens that vLLM before 0.20.1 logs: as if layers with a window kept every token.

    It divides the pages evenly among the tables and counts the tokens of the smallest page.
    """
    return kv_bytes // page_bytes // len(tables) * min(table.page_tokens for table in tables)
