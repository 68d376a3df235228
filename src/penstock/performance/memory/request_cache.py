"""Computes the bytes of keys, values and states that layers keep for one request."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from penstock.fleet.deployment import Deployment
from penstock.model import RecurrentState
from penstock.model.sequence_mixers import SequenceMixer


def request_cache_bytes(deployment: Deployment, layers: Sequence[int], tokens: int) -> int:
    """Return the bytes of keys, values and states that the given layers keep for one request, in whole blocks."""
    return mixer_cache_bytes(deployment, count_mixers(deployment, layers), tokens)


def count_mixers(deployment: Deployment, layers: Sequence[int]) -> Counter[SequenceMixer]:
    """Count the layers of each kind of sequence mixer. Most models have one or two kinds."""
    mixers = (deployment.model.layers[index].mixer for index in layers)
    return Counter(mixer for mixer in mixers if mixer is not None)


def mixer_cache_bytes(deployment: Deployment, mixers: Mapping[SequenceMixer, int], tokens: int) -> int:
    """Return the bytes of one request in layers that are counted by their kind of sequence mixer."""
    block, tp, dtype = deployment.engine.block_tokens, deployment.parallelism.tp, deployment.chosen_cache_dtype
    total = 0.0
    for mixer, layers in mixers.items():
        kept = mixer.remembered_tokens(tokens) if deployment.engine.frees_windows else tokens
        held = ceil(kept / block) * block
        fixed = mixer.bytes_per_sequence(dtype, tp)
        if isinstance(mixer, RecurrentState):
            fixed *= deployment.engine.states_per_sequence
        total += layers * (held * mixer.bytes_per_token(dtype, tp) + fixed)
    return ceil(total)
