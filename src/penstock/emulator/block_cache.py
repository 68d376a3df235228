"""Models vLLM's pool of KV cache blocks.

The model stores the number of blocks and the eviction order, but no cache data.
"""

from collections import OrderedDict
from collections.abc import Sequence


class BlockCache:
    """KV cache blocks of one engine. Blocks with cached content have a key; blocks without content are only counted.

    Free blocks without content are allocated first. If no free block without content is left, the blocks that were
    freed the longest time ago are evicted. Of the blocks that one request freed, the block at the end of the prompt is
    evicted first. If two requests compute the same content at the same time, only one of the two blocks is cached.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._blank = blocks
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._next_own = -1

    @property
    def free(self) -> int:
        """Number of blocks that can be allocated."""
        return self._blank + len(self._idle)

    @property
    def used(self) -> int:
        """Number of blocks that requests hold."""
        return self.blocks - self.free

    def find(self, keys: Sequence[int]) -> tuple[int, int]:
        """Return how many blocks at the start of a prompt are cached, and how many of these blocks no request holds."""
        count = idle = 0
        for key in keys:
            if key in self._idle:
                idle += 1
            elif key not in self._held:
                break
            count += 1
        return count, idle

    def hold(self, keys: Sequence[int]) -> None:
        """Add one reference to each of the cached blocks with these keys."""
        for key in keys:
            self._idle.pop(key, None)
            self._held[key] = self._held.get(key, 0) + 1

    def allocate(self, count: int) -> None:
        """Allocate `count` blocks.

        If too few blocks without content are free, evict the blocks that were freed the longest time ago.
        """
        evicted = max(0, count - self._blank)
        for _ in range(evicted):
            self._idle.popitem(last=False)
        self._blank -= count - evicted

    def register(self, key: int) -> int:
        """Give a held block the key of its content, and return the key.

        If another block already has this key, the held block gets a key that matches no content.
        """
        if key in self._held or key in self._idle:
            key = self.own_key()
        self._held[key] = 1
        return key

    def own_key(self) -> int:
        """Return a key that matches no prompt's content."""
        self._next_own -= 1
        return self._next_own

    def release(self, named: Sequence[int], unnamed: int) -> None:
        """Release one reference to each block in `named`, from the last to the first.

        Also release `unnamed` blocks without content.
        """
        self._blank += unnamed
        for key in reversed(named):
            references = self._held[key] - 1
            if references:
                self._held[key] = references
            else:
                del self._held[key]
                self._idle[key] = None

    def forget_idle(self) -> None:
        """Drop the content of all blocks that no request holds, as a flush of the prefix cache does."""
        self._blank += len(self._idle)
        self._idle.clear()
