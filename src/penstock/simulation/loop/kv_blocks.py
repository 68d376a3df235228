"""Tracks free and cached KV blocks, and their order of eviction, as vLLM's block pool does.

The unit is a run of blocks. The free blocks of a replica are taken in this order: blank blocks, then cached blocks,
least recently freed first. A finished request frees its blocks from the last to the first, so its blocks are adjacent
in this order and form one run. A run is a preempted request's own blocks, a shared segment, or blocks that no request
can hit again. Blocks of the last kind are called junk and are counted with the run that follows them.

The cached part of a prompt is always its beginning, because a segment is never older than the segments after it. The
cached part is therefore fully described by a count of blocks.
"""

from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.world import DECODE, NONE, World

SEGMENTS_FROM = -2
"""Offset of segments in the list of free runs. A request's own run is listed by the number of the request's row.

The run of segment k is listed as SEGMENTS_FROM - k.
"""


@compiled
def take(w: World, r: int, count: int) -> None:
    """Allocate free blocks. Evict their cached content, oldest first.

    The caller ensures that enough blocks are free.
    """
    replica = w.replicas[r]
    replica.free -= count
    used = replica.blocks - replica.free
    replica.peak_used = max(replica.peak_used, used)
    blank = min(count, replica.blank)
    replica.blank -= blank
    count -= blank
    mask = len(w.rows) - 1
    while count > 0:
        entry = replica.lru_first
        if entry == NONE:
            replica.junk -= count
            return
        if entry >= 0:
            row = w.rows[entry & mask]
            lost = min(count, row.lru_junk)
            row.lru_junk -= lost
            count -= lost
            lost = min(count, row.own_cached)
            row.own_cached -= lost
            count -= lost
            emptied = row.own_cached == 0 and row.lru_junk == 0
        else:
            held = w.cached[r, SEGMENTS_FROM - entry]
            lost = min(count, held.junk)
            held.junk -= lost
            count -= lost
            lost = min(count, held.blocks)
            held.blocks -= lost
            count -= lost
            emptied = held.blocks == 0 and held.junk == 0
        if emptied:
            unlink(w, r, entry)


@compiled
def unlink(w: World, r: int, entry: int) -> None:
    """Remove a run from the list of free runs. Junk before the run is counted with the next run."""
    mask = len(w.rows) - 1
    replica = w.replicas[r]
    if entry >= 0:
        row = w.rows[entry & mask]
        before, after, junk = row.lru_before, row.lru_after, row.lru_junk
        row.lru_junk = 0
    else:
        held = w.cached[r, SEGMENTS_FROM - entry]
        before, after, junk = held.before, held.after, held.junk
        held.junk = 0
    if before == NONE:
        replica.lru_first = after
    elif before >= 0:
        w.rows[before & mask].lru_after = after
    else:
        w.cached[r, SEGMENTS_FROM - before].after = after
    if after == NONE:
        replica.lru_last = before
        replica.junk += junk
    elif after >= 0:
        successor = w.rows[after & mask]
        successor.lru_before = before
        successor.lru_junk += junk
    else:
        follower = w.cached[r, SEGMENTS_FROM - after]
        follower.before = before
        follower.junk += junk


@compiled
def append(w: World, r: int, entry: int) -> None:
    """Append a run to the list of free runs, as the most recently freed."""
    mask = len(w.rows) - 1
    replica = w.replicas[r]
    last = replica.lru_last
    if entry >= 0:
        row = w.rows[entry & mask]
        row.lru_before, row.lru_after, row.lru_junk = last, NONE, replica.junk
    else:
        held = w.cached[r, SEGMENTS_FROM - entry]
        held.before, held.after, held.junk = last, NONE, replica.junk
    replica.junk = 0
    replica.lru_last = entry
    if last == NONE:
        replica.lru_first = entry
    elif last >= 0:
        w.rows[last & mask].lru_after = entry
    else:
        w.cached[r, SEGMENTS_FROM - last].after = entry


@compiled
def release(w: World, r: int, number: int, tokens: int, known: int, keep: bool) -> None:  # noqa: FBT001 - no keywords
    """Free a request's blocks: first the unshared blocks, from the last to the first, then the segments, leaf first.

    `keep` is true if the request will be resumed. `known` is the number of the request's tokens whose content is known.
    Full blocks of known tokens can be hit.
    """
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    compute(w, r, number, known)
    size = replica.block_tokens
    full, held = known // size, -(-tokens // size)
    private = held - row.shared
    replica.free += private
    if replica.caching:
        replica.blank += held - full
        private -= held - full
        mine = 0
        if keep:
            mine = min(private, max(0, full - _path_blocks(w, r, number)))
            row.own_cached = mine
        replica.junk += private - mine
        if mine > 0:
            append(w, r, number)
    else:
        replica.blank += private
    leave_segments(w, r, number)
    row.shared = 0


@compiled
def _path_blocks(w: World, r: int, number: int) -> int:
    """Return the number of blocks of a prompt that belong to segments."""
    tree = w.segments[w.replicas[r].pool]
    leaf = w.rows[number & (len(w.rows) - 1)].leaf
    return tree[leaf].first_block + tree[leaf].blocks if leaf != NONE else 0


@compiled
def leave_segments(w: World, r: int, number: int) -> None:
    """Release a request's segments, deepest first. A segment without users becomes free but stays cached."""
    tree = w.segments[w.replicas[r].pool]
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    segment = row.leaf
    while segment != NONE and tree[segment].depth >= row.entered:
        segment = tree[segment].parent
    while segment != NONE:
        held = w.cached[r, segment]
        held.users -= 1
        if row.doubled == segment:
            held.doubles -= 1
            row.doubled = NONE
        if held.builder == number + 1:
            held.builder = 0
        if 0 < held.users == held.doubles:
            _hand_over(w, r, segment)
        if held.users == 0 and held.blocks > 0:
            replica.free += held.blocks
            append(w, r, SEGMENTS_FROM - segment)
        segment = tree[segment].parent
    row.entered = 0
    row.building = 0


@cold
def _double(w: World, r: int, number: int, node: int, beginning: int) -> None:
    """Record that a request computes blocks of a shared segment for itself.

    Of several such segments, only the last is remembered.
    """
    row = w.rows[number & (len(w.rows) - 1)]
    if row.doubled != NONE:
        w.cached[r, row.doubled].doubles -= 1
    w.cached[r, node].doubles += 1
    row.doubled, row.doubled_from = node, beginning


@cold
def _hand_over(w: World, r: int, node: int) -> None:
    """Make a request that computes a segment for itself the segment's holder.

    If all users of a segment compute it for themselves, the first user becomes the holder.
    """
    mask = len(w.rows) - 1
    replica, held = w.replicas[r], w.cached[r, node]
    segment = w.segments[replica.pool, node]
    number = replica.running_first
    while number != NONE:
        row = w.rows[number & mask]
        if row.doubled == node:
            tokens = row.lag + replica.step if row.state == DECODE else row.computed
            reached = min(tokens // replica.block_tokens - segment.first_block, segment.blocks)
            reached = max(reached, row.doubled_from)
            replica.free += held.blocks - row.doubled_from
            replica.junk += held.blocks - row.doubled_from
            row.shared += reached - row.doubled_from
            held.blocks = reached
            held.doubles -= 1
            row.doubled = NONE
            if reached < segment.blocks:
                row.building = 1
                held.builder = number + 1
            return
        number = row.after


@compiled
def lookup(w: World, r: int, number: int, tokens: int) -> tuple[int, int]:
    """Return the number of cached blocks with which a request would begin, and the number of these that are free."""
    tree = w.segments[w.replicas[r].pool]
    row = w.rows[number & (len(w.rows) - 1)]
    replica = w.replicas[r]
    most = (tokens - 1) // replica.block_tokens
    found, freed = 0, 0
    segment, depth = row.leaf, 0
    if segment != NONE:
        depth = tree[segment].depth + 1
        for level in range(depth - 1, -1, -1):
            w.path[level] = segment
            segment = tree[segment].parent
    for level in range(depth):
        node = w.path[level]
        held = w.cached[r, node]
        if held.builder > 0:
            _catch_up(w, r, node)
        if found >= most or (held.blocks == 0 and tree[node].blocks > 0):
            return found, freed
        usable = min(held.blocks, most - found)
        found += usable
        if held.users == 0:
            freed += usable
        if usable < tree[node].blocks:
            return found, freed
    if row.own_cached > 0 and found < most:
        mine = min(row.own_cached, most - found)
        found += mine
        freed += mine
    return found, freed


@cold
def _catch_up(w: World, r: int, node: int) -> None:
    """Update the number of a segment's blocks that a decoding request has filled, including the block of this step."""
    replica, held = w.replicas[r], w.cached[r, node]
    segment = w.segments[replica.pool, node]
    row = w.rows[(held.builder - 1) & (len(w.rows) - 1)]
    if row.state != DECODE or not row.building:
        return
    reached = min((row.lag + replica.step + 1) // replica.block_tokens - segment.first_block, segment.blocks)
    if reached > held.blocks:
        row.shared += reached - held.blocks
        held.blocks = reached


@compiled
def hold(w: World, r: int, number: int, hit: int) -> None:
    """Give a request the cached blocks that `lookup` found. Cached blocks that were free are now in use."""
    tree = w.segments[w.replicas[r].pool]
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    row.entered, row.shared, row.building, row.doubled = 0, 0, 0, NONE
    depth = tree[row.leaf].depth + 1 if row.leaf != NONE else 0
    found = 0
    for level in range(depth):
        if found >= hit:
            break
        node = w.path[level]
        held = w.cached[r, node]
        usable = min(held.blocks, hit - found)
        if held.users == 0 and held.blocks > 0:
            unlink(w, r, SEGMENTS_FROM - node)
            replica.free -= usable
            # The block of the last prompt token is recomputed; the cached one becomes junk.
            replica.junk += held.blocks - usable
            held.blocks = usable
        held.users += 1
        row.entered += 1
        # The request that finds a partly cached segment without users computes the rest for all requests.
        row.building = held.users == 1 and held.blocks < tree[node].blocks
        if row.building:
            held.builder = number + 1
        elif usable < tree[node].blocks:
            _double(w, r, number, node, usable)
        found += usable
    row.shared = found
    _take_back_own(w, r, number, hit)


@cold
def _take_back_own(w: World, r: int, number: int, hit: int) -> None:
    """Give a resumed request its own cached blocks back.

    Blocks beyond `hit` become junk, because the block of the last token is always recomputed.
    """
    row = w.rows[number & (len(w.rows) - 1)]
    replica = w.replicas[r]
    if row.own_cached == 0:
        return
    unlink(w, r, number)
    mine = hit - row.shared
    replica.free -= mine
    replica.junk += row.own_cached - mine
    row.own_cached = 0


@cold
def drop_own(w: World, r: int, number: int) -> None:
    """Turn the cached blocks of a preempted request, which will not be resumed, into junk."""
    row = w.rows[number & (len(w.rows) - 1)]
    if row.own_cached > 0:
        row.lru_junk += row.own_cached
        row.own_cached = 0
        unlink(w, r, number)


@compiled
def compute(w: World, r: int, number: int, tokens: int) -> None:
    """Enter the segments that a prefill has reached after `tokens` tokens.

    Other requests can hit the blocks that this request is the first to compute.
    """
    tree = w.segments[w.replicas[r].pool]
    row = w.rows[number & (len(w.rows) - 1)]
    if row.leaf == NONE or not w.replicas[r].caching:
        return
    full = tokens // w.replicas[r].block_tokens
    depth = tree[row.leaf].depth + 1
    segment = row.leaf
    for level in range(depth - 1, -1, -1):
        w.path[level] = segment
        segment = tree[segment].parent
    while True:
        if row.building:
            node = w.path[row.entered - 1]
            held = w.cached[r, node]
            reached = min(full - tree[node].first_block, tree[node].blocks)
            if reached > held.blocks:
                row.shared += reached - held.blocks
                held.blocks = reached
        if row.entered >= depth:
            return
        node = w.path[row.entered]
        if full <= tree[node].first_block and tree[node].blocks > 0:
            return
        held = w.cached[r, node]
        if held.users == 0 and held.blocks > 0:
            # Cached, but behind a gap, so it could not be hit: the newly computed blocks replace it.
            unlink(w, r, SEGMENTS_FROM - node)
            w.replicas[r].junk += held.blocks
            held.blocks = 0
        row.building = held.users == 0
        if row.building:
            held.builder = number + 1
            held.since_s = w.replicas[r].start_s
        else:
            _double(w, r, number, node, 0)
        held.users += 1
        row.entered += 1
