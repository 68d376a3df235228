"""Computes the blocks into which vLLM divides the KV cache of a model with recurrent layers.

The rules were read in vLLM 0.18.0, 0.20.0, 0.24.0, 0.28.0 and 0.33.0 (`_align_hybrid_block_size` in
platforms/interface.py, before 0.20 in models/config.py; `_get_kv_cache_groups_uniform_page_size` in kv_cache_utils.py).
A page of attention holds as many tokens as it takes to be as large as one state. States are padded to that size. Layers
of one kind are divided into groups with equal numbers of layers, and a block holds a page of each layer of one group.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from penstock.fleet.deployment import Deployment
from penstock.model import LatentAttention, RecurrentState
from penstock.performance.memory.sliding_pages import layers_together

_ALIGNMENT = 16
_LATENT_ALIGNMENT = 128
"""Tokens of which a page of attention holds a multiple, from vLLM 0.28 on also with MLA."""


class StateBlocks(NamedTuple):
    """Blocks of the KV cache of a model with recurrent layers: P10, median and P90 over the published logs."""

    low: int
    median: int
    high: int


class StatePages:
    """Pages of one pipeline stage: the tokens of a page, its bytes, and the groups of layers that share the pool."""

    def __init__(self, deployment: Deployment, stage_layers: Sequence[int]) -> None:
        tp, dtype, here = deployment.parallelism.tp, deployment.chosen_cache_dtype, set(stage_layers)
        mixers = [(index, layer.mixer) for index, layer in enumerate(deployment.model.layers) if layer.mixer]
        states = [index for index, mixer in mixers if isinstance(mixer, RecurrentState)]
        others = [(index, mixer) for index, mixer in mixers if index not in set(states)]
        state = max(mixer.bytes_per_sequence(dtype, tp) for _, mixer in mixers if isinstance(mixer, RecurrentState))
        per_token = max((mixer.bytes_per_token(dtype, tp) for _, mixer in others), default=0)
        latent = any(isinstance(mixer, LatentAttention) for _, mixer in others)
        step = _LATENT_ALIGNMENT if latent else _ALIGNMENT
        self.tokens = step * ceil(state / (step * per_token)) if per_token else 0
        self._page_bytes = int(self.tokens * per_token) or state
        kinds = [states, [index for index, _ in others]] if others else [states]
        together = layers_together([len(kind) for kind in kinds], wide=deployment.engine.release.reaches(0, 20))
        cuts = [ceil(len(kind) / together) for kind in kinds]
        groups = [here & set(kind[at::cut]) for kind, cut in zip(kinds, cuts, strict=True) for at in range(cut)]
        self._layers = max(len(group) for group in groups)
        self._groups, self._state_groups = len(groups), cuts[0]
        self._copies = deployment.engine.states_per_sequence

    def blocks(self, kv_bytes: int) -> int:
        """Return the number of blocks. A running request needs at least one for the states of each group."""
        return max(0, kv_bytes) // self._page_bytes // self._layers if self._layers else 0

    def logged_tokens(self, kv_bytes: int, context_tokens: int, *, by_request: bool) -> int | None:
        """Return the tokens that vLLM logs as the size of the cache. None if no layer keeps tokens.

        Since 0.20.1 it counts the requests of the context limit that fit. Before, it divides the blocks evenly among
        the groups, as if states kept tokens.
        """
        if not self.tokens:
            return None
        if by_request:
            needed = ceil(context_tokens / self.tokens) + self._state_groups * self._copies
            return int(self.blocks(kv_bytes) / needed * context_tokens)
        return self.blocks(kv_bytes) // self._groups * self.tokens


def state_pages(deployment: Deployment, layers: Sequence[int]) -> StatePages | None:
    """Return the pages of vLLM's cache on a pipeline stage that has recurrent layers. None for any other stage."""
    recurrent = any(isinstance(deployment.model.layers[index].mixer, RecurrentState) for index in layers)
    return StatePages(deployment, layers) if recurrent and deployment.engine.name == "vllm" else None
