"""Schedules the steps of a replica: continuous batching with chunked prefill as in vLLM V1.

Every decoding request gains one token per step. All steps until the next change of the batch are therefore planned at
once, as one leap. The batch changes when a request finishes, a prompt is prefilled, KV blocks run out, or a request
arrives.

With asynchronous scheduling, a step is scheduled before the tokens of the previous step are known. The scheduler does
not see requests that arrived during the previous step. Batch slots and blocks of requests that end with the previous
step are released only after the next step is scheduled.
"""

import math

from penstock.compiled.marks import cold, compiled
from penstock.simulation.loop.clients import end_wait
from penstock.simulation.loop.kv_blocks import compute, hold, lookup, release, take
from penstock.simulation.loop.leaving import stop_prompt
from penstock.simulation.loop.observe import client_lag_s, count_gap, grown_blocks, observe
from penstock.simulation.loop.observed_tokens import note_finished, note_first_token
from penstock.simulation.loop.queues import (
    ask_again_later,
    join_running,
    leave_running,
    leave_waiting,
    send,
    wait_first,
    wait_last,
)
from penstock.simulation.loop.step_events import (
    enter_decode,
    find_next_event,
    forget_decode,
    grow_sums,
    leave_sums,
    leave_windows,
)
from penstock.simulation.loop.step_time import (
    chunk_s,
    cut_short,
    cut_together,
    plan_times,
    steps_s,
    take_steps,
)
from penstock.simulation.loop.world import DECODE, DONE, NONE, PREFILL, World

CLOCK_S = 1e-9
"""Tolerance, in seconds, within which two times count as equal.

Step boundaries are floating-point sums, which round.
"""


@compiled
def enqueue(w: World, r: int, number: int, now_s: float) -> None:
    """Queue a request. Wake the replica if it is idle.

    If it is in a leap of equal steps, end the leap early, so that the new request is scheduled.
    """
    replica = w.replicas[r]
    w.rows[number & (len(w.rows) - 1)].queued_s = now_s
    wait_last(w, r, number, now_s)
    if replica.end_s == math.inf:
        replica.start_s, replica.end_s, replica.steps = now_s, now_s, 0
        w.ends[r] = now_s
    elif replica.waiting == 1 and replica.steps > 1:
        if replica.together:
            cut_together(w, replica.head, now_s)
        else:
            cut_short(w, r, now_s)


@compiled
def begin(w: World, r: int, now_s: float) -> None:
    """Schedule the next step, or a leap (several steps at once) if the batch does not change.

    A replica without work becomes idle.
    """
    replica = w.replicas[r]
    preemptions = replica.preemptions
    pair_s = schedule(w, r, now_s, replica.draining != 0)
    late = replica.ahead and release_finished(w, r)
    if replica.running == 0:
        replica.steps = 0
        # If nothing runs and a request waits, the blocks of a preempted request allow the next admission.
        replica.end_s = now_s if replica.waiting > 0 else math.inf
        w.ends[r] = replica.end_s
        return
    plan_times(w, r, pair_s)
    steps = 1
    if replica.prefill_tokens == 0 and replica.preemptions == preemptions and not late:
        steps = equal_steps(w, r)
    take_steps(w, r, steps)


@compiled
def schedule(w: World, r: int, now_s: float, later: bool) -> float:  # noqa: FBT001 - compiled code takes no keywords
    """Fill the next step with decoding requests, the prompt in progress, and (unless `later` is set) new requests.

    Return the seconds that attention over the prompts adds to the step.
    """
    replica = w.replicas[r]
    replica.start_s = now_s
    replica.prefill_tokens = replica.prompts = 0
    replica.prefill_first = NONE
    preemptions = replica.preemptions
    _grow_decodes(w, r, now_s)
    pair_s = _continue_prefill(w, r, now_s)
    if replica.preemptions == preemptions and not later:
        pair_s += _admit(w, r)
    return pair_s


@cold
def release_finished(w: World, r: int) -> bool:
    """Release the batch slots and blocks of requests that ended in the last step.

    Return True if a waiting request may be admitted in the next step. The reason is that slots and blocks were
    released, or that the request has become visible to the scheduler.
    """
    replica = w.replicas[r]
    number = replica.gone_first
    freed = number != NONE
    while number != NONE:
        row = w.rows[number & (len(w.rows) - 1)]
        following = row.lru_after
        if row.lag != NONE:
            _leave(w, r, number, row.lag, row.lag)
        number = following
    replica.gone_first = replica.gone_last = NONE
    if replica.waiting == 0:
        return False
    newcomer = w.rows[replica.waiting_first & (len(w.rows) - 1)]
    return bool(freed or newcomer.queued_s > replica.observed_s + CLOCK_S)


@compiled
def _leave(w: World, r: int, number: int, tokens: int, known: int) -> None:
    """Release a request's batch slot and blocks."""
    leave_running(w, r, number)
    release(w, r, number, tokens, known, False)  # noqa: FBT003 - compiled code takes no keywords


@compiled
def _grow_decodes(w: World, r: int, now_s: float) -> None:
    """Allocate blocks to decoding requests that start a new block.

    If blocks run out, preempt the newest running request.
    """
    replica = w.replicas[r]
    mask, size = len(w.rows) - 1, replica.block_tokens
    wanted = w.phases[r, -replica.step % size]
    while wanted > replica.free:
        victim = w.rows[replica.running_last & mask]
        if victim.state == DECODE and (victim.lag + replica.step) % size == 0:
            wanted -= 1
        _preempt(w, r, replica.running_last, now_s)
    take(w, r, wanted)


@compiled
def _continue_prefill(w: World, r: int, now_s: float) -> float:
    """Continue the prompt that did not fit into the last step. Return the seconds of attention that the prompt adds."""
    replica = w.replicas[r]
    number = replica.running_last
    if number == NONE:
        return 0.0
    row = w.rows[number & (len(w.rows) - 1)]
    if row.state != PREFILL:
        return 0.0
    tokens = min(row.input_tokens + row.generated - row.computed, replica.max_tokens - replica.decoding)
    size = replica.block_tokens
    need = -(-(row.computed + tokens) // size) - -(-row.computed // size)
    if need > replica.free:
        _preempt(w, r, number, now_s)
        return 0.0
    take(w, r, need)
    replica.prefill_first = number
    return _schedule_chunk(w, r, number, tokens)


@compiled
def _admit(w: World, r: int) -> float:
    """Admit waiting requests in order of arrival while the step, the batch and the KV cache have room."""
    replica = w.replicas[r]
    mask, size = len(w.rows) - 1, replica.block_tokens
    seconds = 0.0
    # An idle engine schedules at once.
    observed_s = replica.observed_s + CLOCK_S if replica.ahead and replica.running > 0 else math.inf
    while replica.waiting > 0 and replica.running < replica.max_requests:
        room = replica.max_tokens - replica.decoding - replica.prefill_tokens
        number = replica.waiting_first
        row = w.rows[number & mask]
        if room <= 0 or row.queued_s > observed_s:
            break
        total = row.input_tokens + row.generated
        hit, hit_free, known = 0, 0, 0
        if row.received:
            known = total - 1
        elif replica.caching:
            hit, hit_free = lookup(w, r, number, total)
            known = hit * size
        # The whole prompt must fit now, although blocks are taken chunk by chunk (scheduler_reserve_full_isl).
        if -(-total // size) - hit + hit_free > replica.free:
            break
        leave_waiting(w, r)
        if row.generated == 0 and row.preempted == 0:
            row.waited_s += replica.start_s - row.queued_s
        if not row.received:
            _count_lookup(w, r, number, total, known)
            if replica.caching:
                hold(w, r, number, hit)
        join_running(w, r, number)
        row.computed = known
        tokens = min(total - known, room)
        take(w, r, -(-(known + tokens) // size) - hit)
        seconds += _schedule_chunk(w, r, number, tokens)
    return seconds


@compiled
def _count_lookup(w: World, r: int, number: int, total: int, known: int) -> None:
    """Count cache hits as vLLM's metrics do, without requests that are resumed after a preemption."""
    row, replica = w.rows[number & (len(w.rows) - 1)], w.replicas[r]
    if row.preempted == 0:
        row.hit_tokens = known
        replica.hit_total += known
        replica.looked_up_total += total


@compiled
def _schedule_chunk(w: World, r: int, number: int, tokens: int) -> float:
    """Add prompt tokens to the step, and return the seconds of attention that they add."""
    row = w.rows[number & (len(w.rows) - 1)]
    start, stop = float(row.computed), float(row.computed + tokens)
    row.computed += tokens
    w.replicas[r].prefill_tokens += tokens
    if tokens > 1:
        w.replicas[r].prompts += 1
    if not row.received:
        compute(w, r, number, row.computed)
    return chunk_s(w, r, start, stop)


@cold
def _preempt(w: World, r: int, number: int, now_s: float) -> None:
    """Preempt a running request: free its blocks and put it at the front of the queue.

    The request recomputes the lost tokens when it is resumed.
    """
    row, replica = w.rows[number & (len(w.rows) - 1)], w.replicas[r]
    if row.state == DONE:  # its last token is in progress: it is not resumed
        _leave(w, r, number, row.lag, row.lag - 1)
        row.lag = NONE
        row.preempted += 1
        replica.preemptions += 1
        return
    tokens = known = row.computed
    if row.state == DECODE:
        tokens = row.lag + replica.step
        # If the newest token is still in progress, the content of the block it fills is not known yet.
        known = tokens - 1 if replica.ahead and tokens > row.computed else tokens
        row.generated = tokens + 1 - row.input_tokens
        row.last_s = now_s
        forget_decode(w, r, number, tokens)
    leave_running(w, r, number)
    release(w, r, number, tokens, known, True)  # noqa: FBT003 - compiled code takes no keywords
    row.computed = 0
    row.received = 0
    row.preempted += 1
    replica.preemptions += 1
    wait_first(w, r, number, now_s)


@compiled
def equal_steps(w: World, r: int) -> int:
    """Return the number of consecutive decode steps for which the batch stays the same and blocks suffice."""
    replica = w.replicas[r]
    steps: int = replica.next_event - replica.step
    size, free = replica.block_tokens, replica.free
    # The blocks of the first step are taken. Each further `size` steps take one per request.
    if replica.decoding * (1 + (steps - 1) // size) <= free:
        return steps
    cycles = free // replica.decoding
    count: int = 1 + cycles * size
    free -= cycles * replica.decoding
    while count < steps:
        free -= w.phases[r, -(replica.step + count) % size]
        if free < 0:
            break
        count += 1
    return min(count, steps)


@compiled
def end(w: World, r: int) -> None:
    """Update tokens, blocks, first tokens and finished requests for the steps that just ended."""
    replica = w.replicas[r]
    steps = replica.steps
    if steps == 0:
        return
    now_s = replica.end_s
    replica.observed_s = replica.start_s + steps_s(w, r, steps - 1)
    observe(w, r, now_s)
    take(w, r, grown_blocks(w, r, steps - 1))
    grow_sums(w, r, steps)
    _last_tokens(w, r, now_s)
    _first_tokens(w, r, now_s)
    replica.prefill_tokens = 0


@compiled
def _last_tokens(w: World, r: int, now_s: float) -> None:
    """Finish the requests whose tokens are all generated, in order of admission."""
    replica = w.replicas[r]
    if replica.next_event != replica.step:
        return
    for place in range(leave_windows(w, r)):
        number = w.leaving[place]
        row = w.rows[number & (len(w.rows) - 1)]
        tokens = row.lag + replica.step
        leave_sums(w, r, number, tokens)
        row.generated = row.output_tokens
        _finish(w, r, number, tokens, now_s)
    find_next_event(w, r)


@compiled
def _first_tokens(w: World, r: int, now_s: float) -> None:
    """Turn completed prompts into decoding requests."""
    mask = len(w.rows) - 1
    replica = w.replicas[r]
    number = replica.prefill_first
    while number != NONE:
        row = w.rows[number & mask]
        following = row.after
        if row.abandoned:
            stop_prompt(w, r, number, now_s)
        elif row.computed == row.input_tokens + row.generated:
            if row.generated == 0:
                row.first_s = now_s
                if not replica.prefills_only:  # a prefill replica's first token is not sent to the client
                    end_wait(w, number)
                    note_first_token(w, r, number)
            else:
                count_gap(w, r, now_s - row.last_s, 1)
            row.generated += 1
            row.lag = row.computed - replica.step
            replica.decode_total += 1
            _decode_or_finish(w, r, number, now_s)
        number = following


@compiled
def _decode_or_finish(w: World, r: int, number: int, now_s: float) -> None:
    """Start decoding, or finish the request if no tokens are left or the replica only prefills."""
    row = w.rows[number & (len(w.rows) - 1)]
    left = row.output_tokens - row.generated
    if w.replicas[r].prefills_only or left <= 0:
        _finish(w, r, number, row.computed, now_s)
        return
    row.state = DECODE
    enter_decode(w, r, number, left)


@compiled
def _finish(w: World, r: int, number: int, tokens: int, now_s: float) -> None:
    """Finish a request and release its blocks and its batch slot.

    In a closed loop, the user of the request then sends the next request.
    """
    replica, control = w.replicas[r], w.control[0]
    mask = len(w.rows) - 1
    row = w.rows[number & mask]
    if replica.ahead and not replica.prefills_only:
        row.lag, row.lru_after = tokens, NONE
        if replica.gone_first == NONE:
            replica.gone_first = number
        else:
            w.rows[replica.gone_last & mask].lru_after = number
        replica.gone_last = number
    else:
        _leave(w, r, number, tokens, tokens)
    row.last_s = now_s
    replica.finished += 1
    if replica.prefills_only:
        send(w, r, number, now_s)
        return
    row.state = DONE
    note_finished(w, r, number)
    replica.outstanding_tokens -= row.input_tokens
    control.in_flight -= 1
    # If `first_ratio` is below 1, a client still does not get an answer before it is finished.
    ask_again_later(w, now_s + max(0.0, client_lag_s(w, r, number)))
