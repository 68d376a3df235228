"""Pairs scales with weights by the names and shapes in headers. Values are not read."""

from collections import Counter
from collections.abc import Iterable
from math import ceil, prod
from typing import Final

Block = tuple[int, int]
"""Number of rows and number of columns that share a scale."""
_WEIGHT_ENDINGS: Final = ("_scale_inv", "_scale")
_MAX_RANK: Final = 4
_SQUARES: Final = (16, 32, 64, 128, 256, 512)
_ROW_BLOCKS: Final = (16, 32, 64, 128)
KNOWN_BLOCKS: Final[tuple[Block, ...]] = (
    *((side, side) for side in _SQUARES),
    *((1, columns) for columns in _ROW_BLOCKS),
)
"""Scale blocks that quantisers use. A scale block is either a square (DeepSeek, Qwen) or a slice of a row (MX, NVFP4,
groups)."""


def scale_names(weight: str) -> tuple[str, ...]:
    """Return the possible names of a weight's scale, such as X.weight_scale, X.weight_scale_inv and X_scale."""
    stem = weight.removesuffix(".weight")
    return (*(f"{weight}{ending}" for ending in _WEIGHT_ENDINGS), f"{stem}.scale", f"{stem}_scale", f"{stem}_scales")


def covering_blocks(scale: tuple[int, ...], weight: tuple[int, ...]) -> tuple[Block, ...] | None:
    """Return the scale blocks for which the shape of a scale fits the shape of a weight.

    The result is empty if there is one scale per tensor or channel. The result is None if the scale cannot cover the
    weight.
    """
    if prod(scale) == 1:
        return ()
    if len(weight) > _MAX_RANK or not weight:
        return None
    full = _pad_shape(scale, weight)
    if full is None or any(held not in {1, size} for held, size in zip(full[:-2], weight[:-2], strict=True)):
        return None
    held, size = full[-2:], weight[-2:]
    if len(size) == 1:
        return () if held[0] == size[0] else None
    if held in {(size[0], 1), (1, size[1]), (1, 1)}:
        return ()
    fitting = tuple(block for block in KNOWN_BLOCKS if held == blocks_of(size, block))
    return fitting or None


def blocks_of(shape: tuple[int, ...], block: Block) -> tuple[int, int]:
    """Return the number of blocks along the rows and columns of a matrix. The last block can be partial."""
    return ceil(shape[-2] / block[0]), ceil(shape[-1] / block[1])


def usual_block(pairs: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> Block | None:
    """Return the scale block that fits most (scale, weight) pairs. A single pair may fit several scale blocks."""
    votes: Counter[Block] = Counter()
    for scale, weight in pairs:
        votes.update(covering_blocks(scale, weight) or ())
    return votes.most_common(1)[0][0] if votes else None


def fits_shape(scale: tuple[int, ...], weight: tuple[int, ...], block: Block | None = None) -> bool:
    """Return whether a scale can cover a weight per tensor, per channel or per block.

    If `block` is given, a scale per block must have this block.
    """
    found = covering_blocks(scale, weight)
    if not found:
        return found is not None
    return block is None or block in found


def _pad_shape(scale: tuple[int, ...], weight: tuple[int, ...]) -> tuple[int, ...] | None:
    """Pad a scale's shape to the rank of its weight. Scales per channel or per expert omit trailing dimensions."""
    if len(scale) > len(weight):
        return None
    return (*scale, *(1,) * (len(weight) - len(scale)))
