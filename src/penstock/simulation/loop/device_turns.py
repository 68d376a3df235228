"""Lets the engines of a shared device step in turn, and wakes and evicts models.

A replica on a shared device begins its next steps when it gets its turn. A replica whose model sleeps first waits for
memory. Memory comes from models without work. If they have too little, a model with work drains: it finishes its
running requests and admits no more, and then sleeps. Its waiting requests stay in its queue, so no request is lost.
"""

import math

from penstock.compiled.marks import cold, compiled
from penstock.routing.model_residency import (
    ASLEEP,
    AWAKE,
    RATE_WINDOW_S,
    WAKING,
    harm_per_byte,
    rate_now_per_s,
)
from penstock.simulation.loop.batching import begin
from penstock.simulation.loop.step_time import cut_short, take_steps
from penstock.simulation.loop.world import EVICT_BY_HARM, NONE, SWAP_SLEEP, SWAP_WAKE, World


@compiled
def note_arrival(w: World, r: int, number: int, now_s: float) -> None:
    """Record a request for a model: its time, the model's arrival rate, and whether the model has yet to wake."""
    replica = w.replicas[r]
    replica.rate_per_s = _rate_per_s(w, r, now_s) + 1 / RATE_WINDOW_S
    replica.used_at_s = now_s
    w.rows[number & (len(w.rows) - 1)].cold = replica.residency != AWAKE


@compiled
def _rate_per_s(w: World, r: int, now_s: float) -> float:
    return rate_now_per_s(w.replicas[r].rate_per_s, w.replicas[r].used_at_s, now_s)


@compiled
def take_turn(w: World, r: int, now_s: float) -> None:
    """Ask for a turn of a replica whose steps have ended, or that has got work or memory. Give the next turn."""
    replica = w.replicas[r]
    device = w.devices[replica.on_device]
    replica.steps = 0
    if device.stepping == r:
        device.stepping = NONE
    if replica.residency == WAKING:
        replica.residency = AWAKE
        replica.used_at_s = max(replica.used_at_s, now_s)
    replica.end_s = w.ends[r] = math.inf
    if device.wanting == 0:
        replica.draining = 0
    if replica.residency == AWAKE and replica.draining and replica.running == 0:
        _sleep(w, r, now_s)
    if replica.residency == AWAKE:
        replica.due = 1
    elif replica.waiting > 0 and not replica.wanting:
        replica.wanting, replica.wanting_s = 1, now_s
        device.wanting += 1
    _give_turn(w, r, now_s)
    if device.wanting > 0:
        _find_memory(w, r, now_s)


@compiled
def _give_turn(w: World, after: int, now_s: float) -> None:
    """Let the next replica that is due step. If a replica steps, end its leap early, so that others get a turn."""
    device = w.devices[w.replicas[after].on_device]
    if device.stepping != NONE:
        if w.replicas[device.stepping].steps > 1:
            cut_short(w, device.stepping, now_s)
        return
    r = w.replicas[after].next_on_device
    for _ in range(device.models):
        replica = w.replicas[r]
        if replica.due:
            replica.due = 0
            begin(w, r, now_s)
            if replica.running > 0:
                device.stepping = r
                if replica.steps > 1 and _is_another_due(w, r):
                    take_steps(w, r, 1)
                return
        r = replica.next_on_device


@compiled
def _is_another_due(w: World, r: int) -> bool:
    other = w.replicas[r].next_on_device
    while other != r:
        if w.replicas[other].due:
            return True
        other = w.replicas[other].next_on_device
    return False


@cold
def _find_memory(w: World, any_on_device: int, now_s: float) -> None:
    """Wake the models that have waited longest for memory, as far as memory allows."""
    device = w.devices[w.replicas[any_on_device].on_device]
    while device.wanting > 0:
        r = _longest_wanting(w, any_on_device)
        needed = w.replicas[r].swap_bytes
        if device.free_bytes + _evictable_bytes(w, r) < needed:
            _drain(w, r, now_s)
            return
        while device.free_bytes < needed:
            _sleep(w, _victim(w, r, False, now_s), now_s)  # noqa: FBT003 - compiled code takes no keywords
        _wake(w, r, now_s)


@cold
def _longest_wanting(w: World, any_on_device: int) -> int:
    best, best_s, r = NONE, math.inf, any_on_device
    for _ in range(w.devices[w.replicas[any_on_device].on_device].models):
        replica = w.replicas[r]
        if replica.wanting and replica.wanting_s < best_s:
            best, best_s = r, replica.wanting_s
        r = replica.next_on_device
    return best


@compiled
def _has_work(w: World, r: int) -> bool:
    replica = w.replicas[r]
    return bool(replica.running > 0 or replica.waiting > 0 or replica.due)


@cold
def _evictable_bytes(w: World, r: int) -> int:
    """Return the bytes of the models without work that may sleep."""
    total, other = 0, w.replicas[r].next_on_device
    while other != r:
        replica = w.replicas[other]
        if replica.residency == AWAKE and not replica.kept_awake and not _has_work(w, other):
            total += replica.swap_bytes
        other = replica.next_on_device
    return total


@cold
def _victim(w: World, r: int, busy: bool, now_s: float) -> int:  # noqa: FBT001 - compiled code takes no keywords
    """Return the model that should sleep next, with work if `busy`, else without. NONE if there is none."""
    least_harm = w.devices[w.replicas[r].on_device].eviction == EVICT_BY_HARM
    best, best_value, other = NONE, math.inf, w.replicas[r].next_on_device
    while other != r:
        replica = w.replicas[other]
        if replica.residency == AWAKE and not replica.kept_awake and _has_work(w, other) == busy:
            value = _harm_per_byte(w, other, now_s) if least_harm else replica.used_at_s
            if value < best_value:
                best, best_value = other, value
        other = replica.next_on_device
    return best


@cold
def _harm_per_byte(w: World, r: int, now_s: float) -> float:
    replica = w.replicas[r]
    return harm_per_byte(_rate_per_s(w, r, now_s), replica.wake_s, replica.patience_s, replica.swap_bytes)


@cold
def _drain(w: World, r: int, now_s: float) -> None:
    """Choose a model with work that gives up its memory for `r`, unless one does already or its harm would be larger.

    The harm of waiting is the number of requests that wait for `r`. The harm of draining is the number of requests of
    the other model that wait, or arrive until it is awake again.
    """
    other = w.replicas[r].next_on_device
    while other != r:
        if w.replicas[other].draining or w.replicas[other].residency == WAKING:
            return
        other = w.replicas[other].next_on_device
    victim = _victim(w, r, True, now_s)  # noqa: FBT003 - compiled code takes no keywords
    if victim == NONE:
        return
    replica = w.replicas[victim]
    if w.devices[replica.on_device].eviction == EVICT_BY_HARM:
        away_s = replica.sleep_s + w.replicas[r].wake_s + replica.wake_s
        if w.replicas[r].waiting <= replica.waiting + _rate_per_s(w, victim, now_s) * away_s:
            return
    replica.draining = 1


@cold
def _sleep(w: World, r: int, now_s: float) -> None:
    """Put a model without running requests to sleep. Its KV cache is lost, and its queue stays."""
    replica = w.replicas[r]
    device = w.devices[replica.on_device]
    replica.residency, replica.draining, replica.due = ASLEEP, 0, 0
    replica.evictions += 1
    device.free_bytes += replica.swap_bytes
    device.link_free_s = max(device.link_free_s, now_s) + replica.sleep_s
    _log(w, r, SWAP_SLEEP, now_s)
    _forget_cache(w, r)


@cold
def _forget_cache(w: World, r: int) -> None:
    """Empty the KV cache of a replica without running requests."""
    replica = w.replicas[r]
    replica.free = replica.blank = replica.blocks
    replica.junk = 0
    replica.lru_first = replica.lru_last = NONE
    for segment in range(w.cached.shape[1]):
        held = w.cached[r, segment]
        held.builder = held.junk = held.blocks = held.users = held.doubles = 0
    number = replica.waiting_first
    while number != NONE:  # a preempted request has lost the blocks that it could have found again
        row = w.rows[number & (len(w.rows) - 1)]
        row.own_cached = row.lru_junk = row.shared = row.entered = row.building = 0
        row.doubled = NONE
        number = row.after


@cold
def _wake(w: World, r: int, now_s: float) -> None:
    """Give a model its memory, and copy its weights as soon as the link to the host is free."""
    replica = w.replicas[r]
    device = w.devices[replica.on_device]
    replica.wanting = 0
    device.wanting -= 1
    replica.residency = WAKING
    replica.cold_starts += 1
    device.free_bytes -= replica.swap_bytes
    device.least_free_bytes = min(device.least_free_bytes, device.free_bytes)
    device.link_free_s = max(device.link_free_s, now_s) + replica.wake_s
    replica.end_s = w.ends[r] = device.link_free_s
    _log(w, r, SWAP_WAKE, now_s)


@cold
def _log(w: World, r: int, kind: int, now_s: float) -> None:
    control = w.control[0]
    if control.swaps < len(w.swaps):
        entry = w.swaps[control.swaps]
        entry.at_s, entry.ready_s, entry.replica, entry.kind = (
            now_s,
            w.devices[w.replicas[r].on_device].link_free_s,
            r,
            kind,
        )
        control.swaps += 1
