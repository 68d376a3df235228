"""Which KV blocks exist, who holds them and what they contain: the block pool of vLLM 0.32, one object per block."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

Token = tuple[object, int]
"""What a position holds: where the content comes from and its offset there. Equal tokens are the same text."""


@dataclass(slots=True, eq=False)
class Block:
    """One block of KV cache; `content_hash` is set while the block can be found by its content."""

    block_id: int
    references: int = 0
    content_hash: int | None = None


_references = attrgetter("references")
_content_hash = attrgetter("content_hash")


class ContentHashes:
    """A block's hash is its parent's hash and its own tokens; numbered by first sight, so two never collide."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int | None, tuple[Token, ...]], int] = {}

    def of(self, parent: int | None, tokens: tuple[Token, ...]) -> int:
        return self._numbers.setdefault((parent, tokens), len(self._numbers))


class BlockPool:
    """All blocks, the queue of free ones in the order they are taken, and the free or used ones found by content."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [Block(number) for number in range(num_blocks)]
        self._free: OrderedDict[int, Block] = OrderedDict((block.block_id, block) for block in self.blocks)
        # Equal content can be held by several blocks; a lookup returns the one that was registered first.
        self._found: dict[int, dict[int, Block]] = {}
        self.evictions = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self.blocks) - len(self._free)

    def free_order(self) -> list[int]:
        return list(self._free)

    def longest_hit(self, hashes: Iterable[int]) -> list[Block]:
        """The blocks that hold a prefix; nothing is taken yet."""
        hit: list[Block] = []
        for content_hash in hashes:
            holders = self._found.get(content_hash)
            if holders is None:
                break
            hit.append(next(iter(holders.values())))
        return hit

    def take_found(self, hit: Sequence[Block]) -> None:
        """Hold blocks found by content; a free one leaves the queue and so cannot be evicted."""
        for block in hit:
            if block.references == 0:
                del self._free[block.block_id]
            block.references += 1

    def take_new(self, count: int) -> list[Block]:
        """Take blocks from the head of the queue; what they held can no longer be found."""
        taken = []
        for _ in range(count):
            _, block = self._free.popitem(last=False)
            if block.content_hash is not None:
                self._forget(block)
                self.evictions += 1
            block.references = 1
            taken.append(block)
        return taken

    def register(self, block: Block, content_hash: int) -> None:
        """Make a full block findable by its content."""
        block.content_hash = content_hash
        self._found.setdefault(content_hash, {})[block.block_id] = block

    def release(self, table: Sequence[Block]) -> None:
        """Give up a request's blocks, its tail first.

        A findable block goes to the end of the queue, one that cannot be found goes to the front.
        """
        freed = []
        for block in reversed(table):
            block.references -= 1
            if block.references == 0:
                freed.append(block)
        for block in reversed(freed):
            if block.content_hash is None:
                self._free[block.block_id] = block
                self._free.move_to_end(block.block_id, last=False)
        for block in freed:
            if block.content_hash is not None:
                self._free[block.block_id] = block

    def check(self, tables: Iterable[Sequence[Block]]) -> None:
        """Every block is free or held, held as often as block tables name it, and findable as what it says it holds."""
        held: Counter[Block] = Counter()
        for table in tables:
            held.update(table)
        if len(held) + len(self._free) != len(self.blocks) or any(map(_references, self._free.values())):
            raise AssertionError("a block is both free and held, or neither")
        if list(map(_references, held)) != list(held.values()):
            raise AssertionError("a block's references are not the block tables that name it")
        if sum(map(len, self._found.values())) + list(map(_content_hash, self.blocks)).count(None) != len(self.blocks):
            raise AssertionError("a block can be found by a content it does not hold")
        in_queue = list(map(_content_hash, self._free.values()))
        hashless = in_queue.count(None)
        if in_queue[:hashless].count(None) != hashless:
            raise AssertionError("a block that can be found is taken before one that cannot")

    def _forget(self, block: Block) -> None:
        if block.content_hash is None:
            return
        holders = self._found[block.content_hash]
        del holders[block.block_id]
        if not holders:
            del self._found[block.content_hash]
        block.content_hash = None
