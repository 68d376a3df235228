"""Computes the bytes that vLLM reserves for a request to DeepSeek-V4, whose five block tables share one pool of pages.

The rules were read in vLLM's `kv_cache_utils.py`, `kv_cache_interface.py` and `models/deepseek_v4` at 0.20.0, 0.22.0,
0.25.0, 0.26.0, 0.28.0rc2 and 0.32.0. A page costs the same bytes in every table. A page holds the compressed entries of
256 tokens, or the running state of the fine compressor for four tokens.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from penstock.fleet.deployment import Deployment
from penstock.model import CacheDtype
from penstock.model.sequence_mixers import CompressedAttention
from penstock.performance.memory.block_table import BlockTable, tokens_of_all_layers

_PAGE_TOKENS: Final = 256
_FINE: Final = 4
_COARSE: Final = 128
_STATE_WINDOW: Final = {_FINE: 8, _COARSE: 128}
"""Number of tokens for which each compressor keeps its state. The windows of the fine compressor overlap."""
_STATE_TOKENS: Final = {_FINE: 4, _COARSE: 8}
_WINDOW_TOKENS: Final = 64
_FP8_ALIGNMENT: Final = 576
_ALIGNMENT: Final = 512
_FLOAT32: Final = 4


class CompressedPages:
    """Block tables of one pipeline stage. The tables are computed once and used for many request lengths."""

    def __init__(self, deployment: Deployment, stage_layers: Sequence[int]) -> None:
        self._engine, self._dtype = deployment.engine, deployment.chosen_cache_dtype
        mixers = [layer.mixer for layer in deployment.model.layers]
        kinds = {ratio: _of_ratio(mixers, ratio) for ratio in (_FINE, _COARSE)}
        every = [index for index, mixer in enumerate(mixers) if isinstance(mixer, CompressedAttention)]
        here = set(stage_layers)
        entries = [index for ratio in (_FINE, _COARSE) for index in kinds[ratio]]
        self._full = self._table(mixers, [index for index in entries if index in here], state=None)
        together = max(len(layers) for layers in kinds.values())
        size = _least_padding([together, len(every), *(len(layers) for layers in kinds.values())], together)
        cut = ceil(len(every) / size)
        tables = [self._table(mixers, [i for i in every[part::cut] if i in here], state=0) for part in range(cut)]
        tables += [
            self._table(mixers, [index for index in layers if index in here], state=ratio)
            for ratio, layers in kinds.items()
            if layers
        ]
        self._tables = [self._full, *tables]

    def bytes(self, tokens: int, in_flight: int) -> int:
        """Return the bytes of all pages that one request takes while `in_flight` of its tokens are being computed."""
        return self._page_bytes() * sum(table.blocks(tokens, in_flight) for table in self._tables)

    def tokens_of_all_layers(self, kv_bytes: int) -> int:
        """Return the tokens that vLLM before 0.20.1 logs as the size of the cache."""
        return tokens_of_all_layers(self._tables, self._page_bytes(), kv_bytes)

    def _page_bytes(self) -> int:
        """Return the bytes of a page. From vLLM 0.32 on, a page is as large as the widest table needs.

        Before 0.32, the page size is the product of two numbers: the sum of the distinct page sizes of compressed
        entries, and the largest number of caches with equal page sizes in one table.
        """
        if self._engine.release.reaches(0, 32):
            return max(sum(table.pages) for table in self._tables)
        most = max(max((table.pages.count(size) for size in set(table.pages)), default=0) for table in self._tables)
        return most * sum(set(self._full.pages))

    def _table(self, mixers: Sequence[object], layers: Sequence[int], state: int | None) -> BlockTable:
        chosen = [mixer for index in layers if isinstance(mixer := mixers[index], CompressedAttention)]
        if state is None:
            return BlockTable(None, _PAGE_TOKENS, tuple(size for mixer in chosen for size in self._entries(mixer)))
        if state == 0:
            window = max((mixer.window_tokens for mixer in chosen), default=1)
            pages = tuple(self._align(_WINDOW_TOKENS * mixer.entry_bytes(self._dtype, 1)) for mixer in chosen)
            return BlockTable(window, _WINDOW_TOKENS, pages)
        pages = tuple(size for mixer in chosen for size in self._states(mixer, state))
        return BlockTable(_STATE_WINDOW[state], _STATE_TOKENS[state], pages)

    def _entries(self, mixer: CompressedAttention) -> list[int]:
        held = _PAGE_TOKENS // mixer.compress_ratio
        found = [self._align(held * mixer.entry_bytes(self._dtype, 1))]
        if mixer.index_dim:
            found.append(self._align(held * mixer.index_bytes(self._dtype) * mixer.compress_ratio))
        return found

    def _states(self, mixer: CompressedAttention, ratio: int) -> list[int]:
        # Keys and gates are in fp32, and twice as wide if windows overlap. Before 0.27 they use page sizes of entries.
        wide = 2 if ratio == _FINE else 1
        widths = [mixer.entry_dim] + ([mixer.index_dim] if mixer.index_dim else [])
        sizes = [self._align(_STATE_TOKENS[ratio] * wide * 2 * width * _FLOAT32) for width in widths]
        if self._engine.release.reaches(0, 27):
            return sizes
        shared = sorted(set(self._full.pages))
        return [next((page for page in shared if page >= size), size) for size in sizes]

    def _align(self, size: float) -> int:
        step = _FP8_ALIGNMENT if self._dtype is CacheDtype.FP8 else _ALIGNMENT
        return ceil(size / step) * step


def _of_ratio(mixers: Sequence[object], ratio: int) -> list[int]:
    return [
        index
        for index, mixer in enumerate(mixers)
        if isinstance(mixer, CompressedAttention) and mixer.compress_ratio == ratio
    ]


def _least_padding(counts: Sequence[int], at_least: int) -> int:
    """Return the number of layers per table with which the fewest padding layers are needed.

    Every count of layers is padded to a multiple of this number. If several numbers need equally few padding layers,
    the largest is chosen.
    """
    held = [count for count in counts if count]
    choices = range(max(1, at_least), max(held) + 1)
    return min(choices, key=lambda size: (sum(-count % size for count in held), -size))
