"""Computes the bytes that vLLM reserves for a request if some layers attend only to a window.

The rules were read in vLLM's `kv_cache_utils.py` and `kv_cache_interface.py` at 0.9.1, 0.11.0, 0.14.0, 0.20.0, 0.26.0
and 0.32.0 (`SlidingWindowSpec`, `unify_kv_cache_spec_page_size`, `_get_kv_cache_groups_uniform_page_size`). The results
equal the bytes that the functions of 0.32.0 return. Layers of one kind are divided into groups with equal numbers of
layers. A page costs the same bytes in every group. All tokens of the running step are kept.
"""

from collections.abc import Sequence
from math import ceil

from penstock.fleet.deployment import Deployment
from penstock.model.sequence_mixers import GroupedAttention
from penstock.performance.memory.block_table import BlockTable, tokens_of_all_layers


def slides(deployment: Deployment, layers: Sequence[int]) -> bool:
    """Return whether vLLM groups these layers: all must use plain attention, and some must attend only to a window."""
    mixers = [mixer for index in layers if (mixer := deployment.model.layers[index].mixer) is not None]
    plain = [mixer for mixer in mixers if isinstance(mixer, GroupedAttention) and not mixer.index_dim]
    return len(plain) == len(mixers) and any(_window(mixer) is not None for mixer in plain)


class SlidingPages:
    """Layer groups of one pipeline stage. The groups are computed once and used for many request lengths."""

    def __init__(self, deployment: Deployment, stage_layers: Sequence[int]) -> None:
        engine, dtype, tp = deployment.engine, deployment.chosen_cache_dtype, deployment.parallelism.tp
        kinds: dict[tuple[int | None, int], list[int]] = {}
        for index, layer in enumerate(deployment.model.layers):
            mixer = layer.mixer
            if not isinstance(mixer, GroupedAttention) or not (size := int(mixer.bytes_per_token(dtype, tp))):
                continue
            kinds.setdefault((_window(mixer), size), []).append(index)
        here = set(stage_layers)
        page = max(engine.block_tokens * size for _, size in kinds)
        together = layers_together([len(layers) for layers in kinds.values()], wide=engine.release.reaches(0, 20))
        self._tables = [
            BlockTable(
                window, _page_tokens(page, size, engine.block_tokens), (page,) * len(here & set(layers[at::cut]))
            )
            for (window, size), layers in kinds.items()
            for cut in (ceil(len(layers) / together),)
            for at in range(cut)
        ]

    def bytes(self, tokens: int, in_flight: int) -> int:
        """Return the bytes of all pages that one request takes while `in_flight` of its tokens are being computed."""
        return self._page_bytes() * sum(table.blocks(tokens, in_flight) for table in self._tables)

    def tokens_of_all_layers(self, kv_bytes: int) -> int:
        """Return the tokens that vLLM before 0.20.1 logs as the size of the cache."""
        return tokens_of_all_layers(self._tables, self._page_bytes(), kv_bytes)

    def _page_bytes(self) -> int:
        return max(sum(table.pages) for table in self._tables)


def _window(mixer: GroupedAttention) -> int | None:
    return None if mixer.keeps_all_tokens else mixer.window_tokens


def _page_tokens(page_bytes: int, token_bytes: int, block_tokens: int) -> int:
    """Return the number of tokens per page.

    All pages are as large as the widest page. If a multiple of `block_tokens` tokens fills the page exactly, the page
    holds this number of tokens. Otherwise the page holds `block_tokens` tokens and padding.
    """
    own = token_bytes * block_tokens
    return block_tokens * (page_bytes // own) if page_bytes % own == 0 else block_tokens


def layers_together(counts: Sequence[int], *, wide: bool) -> int:
    """Return the number of layers per group.

    A group has as many layers as there are layers of the rarest kind. If the most common kind has only slightly more
    layers, a group has as many layers as this kind.
    """
    fewest, most = min(counts), max(counts)
    return most if most < fewest * (1.5 if wide else 1.25) else fewest
