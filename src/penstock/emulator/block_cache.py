"""Which KV blocks are free, held or findable? The block pool of vLLM as counts and an order of eviction."""

from collections import OrderedDict
from collections.abc import Sequence


class BlockCache:
    """Blocks of one engine. A block with content is known by its key; one without is only counted.

    Blocks without content are taken first; then the ones that were freed longest ago, a prompt's end before its
    beginning. Equal content computed twice at once is kept once.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._blank = blocks
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._next_own = -1

    @property
    def free(self) -> int:
        """Blocks somebody could take."""
        return self._blank + len(self._idle)

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self.blocks - self.free

    def found(self, keys: Sequence[int]) -> tuple[int, int]:
        """How many blocks of a prompt are here, from its beginning, and how many of those nobody holds."""
        count = idle = 0
        for key in keys:
            if key in self._idle:
                idle += 1
            elif key not in self._held:
                break
            count += 1
        return count, idle

    def hold(self, keys: Sequence[int]) -> None:
        """Share blocks that are here."""
        for key in keys:
            self._idle.pop(key, None)
            self._held[key] = self._held.get(key, 0) + 1

    def take(self, count: int) -> None:
        """Take blocks without content; what was freed longest ago is forgotten where they lack."""
        evicted = max(0, count - self._blank)
        for _ in range(evicted):
            self._idle.popitem(last=False)
        self._blank -= count - evicted

    def name(self, key: int) -> int:
        """Make a held block findable by its content; return the key it is held under."""
        if key in self._held or key in self._idle:
            key = self.own_key()
        self._held[key] = 1
        return key

    def own_key(self) -> int:
        """A key nobody asks for: content that no prompt has."""
        self._next_own -= 1
        return self._next_own

    def release(self, named: Sequence[int], unnamed: int) -> None:
        """Give blocks back, the last first."""
        self._blank += unnamed
        for key in reversed(named):
            left = self._held[key] - 1
            if left:
                self._held[key] = left
            else:
                del self._held[key]
                self._idle[key] = None
