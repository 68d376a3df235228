"""What does a replica do next, and for how long? Continuous batching with chunked prefill as vLLM V1 schedules it.

Every decoding request gains one token in every step, so between two changes of the batch a number of steps is planned
as one: the batch changes when a request finishes, when a prompt is in it, when blocks run out, or when somebody comes.
"""

import math

from penstock.simulation.compiled import compiled, rare
from penstock.simulation.kv_blocks import compute, hold, lookup, release, take
from penstock.simulation.world import (
    BINS,
    BINS_PER_E,
    BUSY,
    DECODE,
    DONE,
    LEAST_S,
    NONE,
    OUTPUT,
    PREFILL,
    PROMPT,
    QUEUED,
    RUNNING,
    TIMELINE,
    USED,
    WAITING,
    World,
)

FAR = 2**62
"""A step that is never reached."""


@compiled
def enqueue(w: World, r: int, number: int, now_s: float, front: bool) -> None:  # noqa: FBT001 - compiled code takes no keywords
    """Put a request into a replica's queue and wake the replica, or cut its steps short to look at the newcomer."""
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    row.state = WAITING
    row.replica = r
    replica.waiting += 1
    if front:
        row.after = replica.waiting_first
        replica.waiting_first = number
        if replica.waiting_last == NONE:
            replica.waiting_last = number
        return
    row.queued_s = now_s
    row.after = NONE
    if replica.waiting_last == NONE:
        replica.waiting_first = number
    else:
        w.rows[replica.waiting_last & mask].after = number
    replica.waiting_last = number
    if replica.end_s == math.inf:
        replica.start_s, replica.end_s, replica.steps = now_s, now_s, 0
    elif replica.waiting == 1 and replica.steps > 1:
        _cut_short(w, r, now_s)


@compiled
def _cut_short(w: World, r: int, now_s: float) -> None:
    """End the planned steps at the first boundary from now on."""
    replica = w.replicas[r]
    passed, first, growth = now_s - replica.start_s, replica.first_step_s, replica.growth_s
    if growth > 0:
        half = first - growth / 2
        steps = (math.sqrt(half * half + 2 * growth * passed) - half) / growth
    else:
        steps = passed / first
    count = max(1, math.floor(steps))
    while count < replica.steps and count * first + growth * (count * (count - 1) / 2) < passed:
        count += 1
    if count < replica.steps:
        replica.steps = count
        replica.end_s = replica.start_s + count * first + growth * (count * (count - 1) / 2)


@compiled
def begin(w: World, r: int, now_s: float) -> None:
    """Schedule the next step, or as many equal ones as nothing can change; a replica without work becomes idle."""
    replica = w.replicas[r]
    replica.start_s = now_s
    replica.prefill_tokens = 0
    replica.prefill_first = NONE
    preemptions = replica.preemptions
    _grow_decodes(w, r, now_s)
    pair_s = _continue_prefill(w, r, now_s)
    if replica.preemptions == preemptions:
        pair_s += _admit(w, r)
    if replica.running == 0:
        replica.steps = 0
        # With nothing running and someone waiting, the blocks of a preempted request free the next admission.
        replica.end_s = now_s if replica.waiting > 0 else math.inf
        return
    tokens = replica.decoding + replica.prefill_tokens
    cost = w.costs[replica.cost]
    first = cost.step_s + replica.decoding * cost.decode_s + replica.prefill_tokens * cost.prefill_token_s + pair_s
    if cost.expert_s > 0:
        first += cost.expert_s * (1 - cost.expert_miss**tokens)
    growth = 0.0
    for kind in range(w.limits.shape[1]):
        per_token = w.context_s[replica.cost, kind]
        first += per_token * w.contexts[r, kind]
        growth += per_token * w.growing[r, kind]
    steps = 1
    if replica.prefill_tokens == 0 and replica.preemptions == preemptions:
        steps = _equal_steps(w, r)
    replica.first_step_s, replica.growth_s, replica.steps = first, growth, steps
    replica.end_s = now_s + steps * first + growth * (steps * (steps - 1) / 2)


@compiled
def _grow_decodes(w: World, r: int, now_s: float) -> None:
    """Give every decode that starts a new block one; while they lack, the newest running request is preempted."""
    replica = w.replicas[r]
    mask, size = len(w.rows) - 1, replica.block_tokens
    wanted = w.phases[r, -replica.step % size]
    while wanted > replica.free:
        victim = w.rows[replica.running_last & mask]
        if victim.state == DECODE and (victim.lag + replica.step) % size == 0:
            wanted -= 1
        preempt(w, r, replica.running_last, now_s)
    take(w, r, wanted)


@compiled
def _continue_prefill(w: World, r: int, now_s: float) -> float:
    """Go on with the one prompt that did not fit into the last step; return the seconds of its attention."""
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
        preempt(w, r, number, now_s)
        return 0.0
    take(w, r, need)
    replica.prefill_first = number
    return _schedule_chunk(w, r, number, tokens)


@compiled
def _admit(w: World, r: int) -> float:
    """Admit waiting requests, first come first served, while the step, the batch and the cache have room."""
    replica = w.replicas[r]
    mask, size = len(w.rows) - 1, replica.block_tokens
    seconds = 0.0
    while replica.waiting > 0 and replica.running < replica.max_requests:
        room = replica.max_tokens - replica.decoding - replica.prefill_tokens
        if room <= 0:
            break
        number = replica.waiting_first
        row = w.rows[number & mask]
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
        _leave_queue(w, r)
        if row.generated == 0 and row.preempted == 0:
            row.waited_s += replica.start_s - row.queued_s
        if not row.received:
            _count_lookup(w, r, number, total, known)
            if replica.caching:
                hold(w, r, number, hit)
        _join_running(w, r, number)
        row.computed = known
        tokens = min(total - known, room)
        take(w, r, -(-(known + tokens) // size) - hit)
        seconds += _schedule_chunk(w, r, number, tokens)
    return seconds


@compiled
def _leave_queue(w: World, r: int) -> None:
    replica = w.replicas[r]
    row = w.rows[replica.waiting_first & (len(w.rows) - 1)]
    replica.waiting_first = row.after
    if row.after == NONE:
        replica.waiting_last = NONE
    replica.waiting -= 1


@compiled
def _count_lookup(w: World, r: int, number: int, total: int, known: int) -> None:
    """Count what was hit, as vLLM's own metrics do: a resumed request is left out."""
    row, replica = w.rows[number & (len(w.rows) - 1)], w.replicas[r]
    if row.preempted == 0:
        row.hit_tokens = known
        replica.hit_total += known
        replica.looked_up_total += total


@compiled
def _join_running(w: World, r: int, number: int) -> None:
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    row.state = PREFILL
    row.before, row.after = replica.running_last, NONE
    if replica.running_last == NONE:
        replica.running_first = number
    else:
        w.rows[replica.running_last & mask].after = number
    replica.running_last = number
    replica.running += 1
    if replica.prefill_first == NONE:
        replica.prefill_first = number


@compiled
def _leave_running(w: World, r: int, number: int) -> None:
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    if row.before == NONE:
        replica.running_first = row.after
    else:
        w.rows[row.before & mask].after = row.after
    if row.after == NONE:
        replica.running_last = row.before
    else:
        w.rows[row.after & mask].before = row.before
    replica.running -= 1


@compiled
def _schedule_chunk(w: World, r: int, number: int, tokens: int) -> float:
    """Put prompt tokens into the step; return the seconds of their attention."""
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    start, end = float(row.computed), float(row.computed + tokens)
    row.computed += tokens
    replica.prefill_tokens += tokens
    if not row.received:
        compute(w, r, number, row.computed)
    seconds = 0.0
    for kind in range(w.limits.shape[1]):
        per_pair = w.pair_s[replica.cost, kind]
        if per_pair > 0:
            limit = float(w.limits[replica.cost, kind])
            seconds += per_pair * (_pairs(end, limit) - _pairs(start, limit))
    return seconds


@compiled
def _pairs(tokens: float, limit: float) -> float:
    if tokens <= limit:
        return tokens * tokens / 2
    return limit * limit / 2 + limit * (tokens - limit)


@rare
def preempt(w: World, r: int, number: int, now_s: float) -> None:
    """Take a running request's blocks and put it in front of the queue; it computes again what it loses."""
    mask = len(w.rows) - 1
    row, replica = w.rows[number & mask], w.replicas[r]
    tokens = row.computed
    if row.state == DECODE:
        tokens = row.lag + replica.step
        row.generated = tokens + 1 - row.input_tokens
        row.last_s = now_s
        _forget_decode(w, r, number, tokens)
    _leave_running(w, r, number)
    release(w, r, number, tokens, True)  # noqa: FBT003 - compiled code takes no keywords
    row.computed = 0
    row.received = 0
    row.preempted += 1
    replica.preemptions += 1
    enqueue(w, r, number, now_s, True)  # noqa: FBT003 - compiled code takes no keywords


@compiled
def _equal_steps(w: World, r: int) -> int:
    """How many decode steps in a row have the same batch and enough blocks?"""
    replica = w.replicas[r]
    steps: int = replica.next_event - replica.step
    size, free = replica.block_tokens, replica.free
    # The first step's blocks are taken; each further `size` steps take one for every request.
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
    """Account for the steps that just ended: tokens, blocks, first tokens, and who is finished."""
    replica = w.replicas[r]
    steps = replica.steps
    if steps == 0:
        return
    now_s, size = replica.end_s, replica.block_tokens
    _observe(w, r, now_s)
    whole, rest = (steps - 1) // size, (steps - 1) % size
    grown = whole * replica.decoding
    for ahead in range(rest):
        grown += w.phases[r, -(replica.step + 1 + ahead) % size]
    take(w, r, grown)
    replica.step += steps
    for kind in range(w.limits.shape[1]):
        w.contexts[r, kind] += steps * w.growing[r, kind]
    _leave_windows_and_finish(w, r, now_s)
    _first_tokens(w, r, now_s)
    replica.prefill_tokens = 0


@compiled
def _first_tokens(w: World, r: int, now_s: float) -> None:
    """Turn completed prompts into decoding requests."""
    mask = len(w.rows) - 1
    replica = w.replicas[r]
    number = replica.prefill_first
    while number != NONE:
        row = w.rows[number & mask]
        following = row.after
        if row.computed == row.input_tokens + row.generated:
            if row.generated == 0:
                row.first_s = now_s
            else:
                _count_gap(w, r, now_s - row.last_s, 1)
            row.generated += 1
            row.lag = row.computed - replica.step
            replica.decode_total += 1
            _remember_decode(w, r, number)
        number = following


@compiled
def _remember_decode(w: World, r: int, number: int) -> None:
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    tokens, size = row.computed, replica.block_tokens
    left = row.output_tokens - row.generated
    if replica.prefills_only or left <= 0:
        _finish(w, r, number, tokens, replica.end_s)
        return
    row.state = DECODE
    replica.decoding += 1
    w.phases[r, row.lag % size] += 1
    _note(w, r, number, 0, replica.step + left)
    for kind in range(w.limits.shape[1]):
        limit = w.limits[replica.cost, kind]
        w.contexts[r, kind] += min(tokens, limit)
        if tokens < limit:
            w.growing[r, kind] += 1
            if limit - tokens <= left:
                _note(w, r, number, kind + 1, replica.step + limit - tokens)


@compiled
def _note(w: World, r: int, number: int, kind: int, step: int) -> None:
    """Enter an event into the calendar."""
    kinds = w.chain.shape[1]
    slot = step & (w.calendar.shape[1] - 1)
    w.chain[number & (len(w.rows) - 1), kind] = w.calendar[r, slot]
    w.calendar[r, slot] = number * kinds + kind
    w.replicas[r].next_event = min(w.replicas[r].next_event, step)


@rare
def _strike(w: World, r: int, number: int, kind: int, step: int) -> None:
    """Take an event out of the calendar."""
    mask, kinds = len(w.rows) - 1, w.chain.shape[1]
    slot = step & (w.calendar.shape[1] - 1)
    wanted = number * kinds + kind
    following = w.chain[number & mask, kind]
    event = w.calendar[r, slot]
    if event == wanted:
        w.calendar[r, slot] = following
    else:
        while w.chain[(event // kinds) & mask, event % kinds] != wanted:
            event = w.chain[(event // kinds) & mask, event % kinds]
        w.chain[(event // kinds) & mask, event % kinds] = following


@rare
def _forget_decode(w: World, r: int, number: int, tokens: int) -> None:
    """Take a decoding request out of the sums, and out of the calendar when it is preempted before its events."""
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    _leave_sums(w, r, number, tokens)
    finish = row.input_tokens + row.output_tokens - 1
    _strike(w, r, number, 0, finish - row.lag)
    for kind in range(w.limits.shape[1]):
        limit = w.limits[replica.cost, kind]
        if tokens < limit <= finish:
            _strike(w, r, number, kind + 1, limit - row.lag)
    _find_next_event(w, r)


@compiled
def _leave_sums(w: World, r: int, number: int, tokens: int) -> None:
    replica = w.replicas[r]
    row = w.rows[number & (len(w.rows) - 1)]
    replica.decoding -= 1
    w.phases[r, row.lag % replica.block_tokens] -= 1
    for kind in range(w.limits.shape[1]):
        limit = w.limits[replica.cost, kind]
        w.contexts[r, kind] -= min(tokens, limit)
        if tokens < limit:
            w.growing[r, kind] -= 1


@compiled
def _find_next_event(w: World, r: int) -> None:
    replica = w.replicas[r]
    if replica.decoding == 0:
        replica.next_event = FAR
        return
    mask = w.calendar.shape[1] - 1
    step = replica.step + 1
    while w.calendar[r, step & mask] == NONE:
        step += 1
    replica.next_event = step


@compiled
def _leave_windows_and_finish(w: World, r: int, now_s: float) -> None:
    """Handle the calendar's events of the step that just ended, finishes in the order of admission."""
    replica = w.replicas[r]
    if replica.next_event != replica.step:
        return
    rows_mask, kinds = len(w.rows) - 1, w.chain.shape[1]
    slot = replica.step & (w.calendar.shape[1] - 1)
    event = w.calendar[r, slot]
    w.calendar[r, slot] = NONE
    finished = 0
    while event != NONE:
        number, kind = event // kinds, event % kinds
        event = w.chain[number & rows_mask, kind]
        if kind > 0:
            w.growing[r, kind - 1] -= 1
        else:
            # Blocks are freed in running order, which is not the calendar's: insert by admission, few at a time.
            place = finished
            while place > 0 and w.leaving[place - 1] > number:
                w.leaving[place] = w.leaving[place - 1]
                place -= 1
            w.leaving[place] = number
            finished += 1
    for place in range(finished):
        number = w.leaving[place]
        row = w.rows[number & rows_mask]
        tokens = row.lag + replica.step
        _leave_sums(w, r, number, tokens)
        row.generated = row.output_tokens
        _finish(w, r, number, tokens, now_s)
    _find_next_event(w, r)


@compiled
def _finish(w: World, r: int, number: int, tokens: int, now_s: float) -> None:
    """Free a request's blocks and seat; in a closed loop its user sends the next one."""
    replica, control = w.replicas[r], w.control[0]
    row = w.rows[number & (len(w.rows) - 1)]
    _leave_running(w, r, number)
    release(w, r, number, tokens, False)  # noqa: FBT003 - compiled code takes no keywords
    row.last_s = now_s
    replica.finished += 1
    if replica.prefills_only:
        _send(w, r, number, now_s)
        return
    row.state = DONE
    replica.outstanding_tokens -= row.input_tokens + row.output_tokens
    control.in_flight -= 1
    if control.closed and control.known_rows < control.loaded_rows:
        w.rows[control.known_rows & (len(w.rows) - 1)].arrival_s = now_s + control.think_s
        control.known_rows += 1


@rare
def _send(w: World, r: int, number: int, now_s: float) -> None:
    """Put a prefilled prompt's KV on the wire; one link per replica carries them one after another."""
    mask = len(w.rows) - 1
    replica, row, cost = w.replicas[r], w.rows[number & mask], w.costs[w.replicas[r].cost]
    replica.outstanding_tokens -= row.input_tokens + row.output_tokens
    start_s = max(now_s, replica.link_free_s)
    replica.link_free_s = start_s + cost.transfer_start_s + row.input_tokens * cost.transfer_token_s
    row.queued_s = replica.link_free_s
    row.generated, row.computed, row.received = 0, 0, 1
    row.state = WAITING
    row.after = NONE
    if replica.transfer_last == NONE:
        replica.transfer_first = number
    else:
        w.rows[replica.transfer_last & mask].after = number
    replica.transfer_last = number
    w.control[0].transferring += 1


@compiled
def _count_gap(w: World, r: int, seconds: float, count: int) -> None:
    """Count intervals between tokens in the histogram of the replica's pool."""
    place = int(math.log(max(seconds, LEAST_S) / LEAST_S) * BINS_PER_E)
    w.tokens_between[w.replicas[r].pool, min(place, BINS - 1)] += count


@compiled
def _observe(w: World, r: int, now_s: float) -> None:
    """Add the steps that just ended to what is reported."""
    replica, control = w.replicas[r], w.control[0]
    seconds = now_s - replica.start_s
    used = replica.blocks - replica.free
    replica.busy_s += seconds
    replica.running_s += replica.running * seconds
    replica.waiting_s += replica.waiting * seconds
    replica.used_s += used * seconds
    replica.engine_steps += replica.steps
    replica.prefill_total += replica.prefill_tokens
    tokens = replica.steps * replica.decoding
    replica.decode_total += tokens
    if tokens > 0:
        _count_steps(w, r)
    _draw(w, r, now_s, tokens)
    if control.log_size < len(w.log):
        event = w.log[control.log_size]
        control.log_size += 1
        event.start_s, event.seconds, event.replica, event.steps = replica.start_s, seconds, r, replica.steps
        event.decodes, event.prefill_tokens = replica.decoding, replica.prefill_tokens
        event.used_blocks, event.waiting = used, replica.waiting


@compiled
def _draw(w: World, r: int, now_s: float, tokens: int) -> None:
    """Spread the steps that just ended over the columns of the timeline they cover."""
    replica, control = w.replicas[r], w.control[0]
    while now_s >= control.width_s * TIMELINE:
        _widen(w)
    seconds, used = now_s - replica.start_s, replica.blocks - replica.free
    from_s = replica.start_s
    column = int(from_s / control.width_s)
    while from_s < now_s:
        until_s = min(now_s, (column + 1) * control.width_s)
        here_s = max(0.0, until_s - from_s)
        cell = w.timeline[replica.pool, column]
        cell[BUSY] += here_s
        cell[RUNNING] += replica.running * here_s
        cell[QUEUED] += replica.waiting * here_s
        cell[USED] += used * here_s
        cell[PROMPT] += replica.prefill_tokens * here_s / seconds
        cell[OUTPUT] += tokens * here_s / seconds
        from_s = max(until_s, (column + 1) * control.width_s)
        column += 1


@compiled
def _count_steps(w: World, r: int) -> None:
    """Spread the lengths of consecutive steps over the histogram; they grow by the same amount each."""
    replica = w.replicas[r]
    first, growth, steps = replica.first_step_s, replica.growth_s, replica.steps
    last = first + growth * (steps - 1)
    if last < first * (1 + 0.5 / BINS_PER_E):
        _count_gap(w, r, first, steps * replica.decoding)
        return
    done = 0
    while done < steps:
        step_s = first + growth * done
        place = int(math.log(max(step_s, LEAST_S) / LEAST_S) * BINS_PER_E)
        upper_s = LEAST_S * math.exp((place + 1) / BINS_PER_E)
        count = min(steps - done, max(1, int((upper_s - step_s) / growth) + 1))
        w.tokens_between[replica.pool, min(place, BINS - 1)] += count * replica.decoding
        done += count


@rare
def _widen(w: World) -> None:
    """Make two timeline columns one."""
    w.control[0].width_s *= 2
    for pool in range(w.timeline.shape[0]):
        for column in range(TIMELINE):
            for what in range(w.timeline.shape[2]):
                both = 0.0
                if 2 * column + 1 < TIMELINE:
                    both = w.timeline[pool, 2 * column, what] + w.timeline[pool, 2 * column + 1, what]
                w.timeline[pool, column, what] = both
