"""What does the compiled loop work on? Every array of a run, with its meaning, allocated in one place."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

NONE: Final = -1
"""No row, no segment, no event."""
LOST: Final = -2
"""No replica, because the one that served a request died when its answer had begun."""
UNASKED: Final = -2
"""Nobody has been asked for a route yet."""

WAITING: Final = 0
PREFILL: Final = 1
DECODE: Final = 2
DONE: Final = 3

ROW: Final = np.dtype(
    [
        ("number", "i8"),  # among all that were sent, those no replica could hold included
        ("arrival_s", "f8"),
        ("queued_s", "f8"),  # when it joined the queue of its replica: later than arrival after a KV transfer
        ("waited_s", "f8"),  # in queues and for its KV on the way, before its first token
        ("first_s", "f8"),  # end of the step with its first token
        ("last_s", "f8"),  # end of the step with its newest token
        ("after", "i8"),  # next row in the running list, in the waiting queue, or in transfer
        ("before", "i8"),  # previous row in the running list
        ("lru_after", "i8"),  # neighbours among cached free blocks, while preempted
        ("lru_before", "i8"),
        ("lag", "i8"),  # tokens behind it minus the replica's step count: constant while it decodes
        ("lru_junk", "i8"),
        ("input_tokens", "i8"),
        ("output_tokens", "i8"),
        ("generated", "i8"),
        ("computed", "i8"),  # tokens in the KV cache, while it prefills
        ("shared", "i8"),  # blocks of its table that belong to segments
        ("own_cached", "i8"),  # its own full blocks still cached, while preempted
        ("leaf", "i8"),  # deepest segment it shares, or becomes
        ("doubled", "i8"),  # segment it computes although another request does
        ("doubled_from", "i8"),  # blocks of that segment it did not have to
        ("entered", "i8"),  # segments it refers to, from the root
        ("hit_tokens", "i8"),  # at its first admission
        ("preempted", "i8"),  # times
        ("picker", "i8"),
        ("replica", "i8"),  # NONE: turned away; LOST: broken off
        ("pool", "i8"),  # NONE: any
        ("slo_class", "u1"),
        ("state", "u1"),
        ("building", "u1"),  # it computes the newest segment it entered, for everybody
        ("received", "u1"),  # its prompt's KV came from a prefill replica
    ],
    align=True,
)

REPLICA: Final = np.dtype(
    [
        ("end_s", "f8"),  # when the steps in progress end; infinity when idle
        ("start_s", "f8"),
        ("first_step_s", "f8"),
        ("growth_s", "f8"),  # how much longer each decode step is than the one before
        ("busy_s", "f8"),
        ("running_s", "f8"),  # integral of running requests
        ("waiting_s", "f8"),  # integral of waiting ones
        ("counted_s", "f8"),  # until when that is counted
        ("used_s", "f8"),  # integral of used blocks
        ("observed_s", "f8"),  # start of the last finished step; requests that arrived later are not yet visible
        ("own_s", "f8"),  # of the step in progress, where ranks step together: what this one takes alone
        ("own_growth_s", "f8"),
        ("link_free_s", "f8"),  # when its outgoing KV link is idle
        ("request_s", "f8"),  # outside the engine, of every request
        ("first_ratio", "f8"),  # first tokens as clients see them, over the steps they waited for
        ("slowness", "f8"),  # how many times its steps are longer than its cost says
        ("step", "i8"),  # engine steps ended
        ("steps", "i8"),  # in progress
        ("next_event", "i8"),  # step at which a decoding request finishes or leaves a window
        ("free", "i8"),  # blocks
        ("blank", "i8"),  # free blocks without cached content
        ("junk", "i8"),  # cached free blocks newer than the newest entry, which nobody can hit
        ("lru_first", "i8"),
        ("lru_last", "i8"),
        ("running_first", "i8"),
        ("running_last", "i8"),
        ("prefill_first", "i8"),  # first row of the running list that still prefills
        ("waiting_first", "i8"),
        ("waiting_last", "i8"),
        ("gone_first", "i8"),  # who ended in the last step and still has a seat and blocks, linked by lru_after
        ("gone_last", "i8"),
        ("transfer_first", "i8"),
        ("transfer_last", "i8"),
        ("running", "i8"),
        ("decoding", "i8"),
        ("waiting", "i8"),
        ("prefill_tokens", "i8"),  # in the step in progress
        ("prompts", "i8"),  # of more than one token in it
        ("prefill_total", "i8"),
        ("decode_total", "i8"),
        ("engine_steps", "i8"),
        ("preemptions", "i8"),
        ("hit_total", "i8"),
        ("looked_up_total", "i8"),
        ("peak_used", "i8"),
        ("finished", "i8"),
        ("blocks", "i8"),
        ("block_tokens", "i8"),
        ("max_tokens", "i8"),
        ("max_requests", "i8"),
        ("context", "i8"),  # tokens of a prompt and its answer at most
        ("outstanding_tokens", "i8"),  # of prompts: nobody knows how long an answer will be
        ("pool", "i8"),
        ("cost", "i8"),
        ("head", "i8"),  # first rank of the engine it belongs to
        ("ranks", "i8"),  # of that engine
        ("rank_turn", "i8"),  # of the head: which rank is looked at first
        ("prompts_wait", "i8"),  # steps for which prompts wait for each other
        ("waited", "i8"),  # of the head: steps for which they have
        ("caching", "u1"),
        ("prefills_only", "u1"),
        ("decodes_only", "u1"),
        ("down", "u1"),
        ("silent", "u1"),  # its reports do not arrive
        ("ahead", "u1"),  # schedules a step before the tokens of the one before it are known
        ("together", "u1"),  # the ranks of its engine end every step together
    ],
    align=True,
)

COST: Final = np.dtype(
    [
        ("step_s", "f8"),
        ("decode_s", "f8"),
        ("prefill_token_s", "f8"),
        ("prompt_step_s", "f8"),
        ("expert_s", "f8"),
        ("expert_miss", "f8"),
        ("experts_decode_s", "f8"),
        ("experts_prefill_token_s", "f8"),
        ("transfer_token_s", "f8"),
        ("transfer_start_s", "f8"),
    ],
    align=True,
)

SEGMENT: Final = np.dtype([("parent", "i8"), ("first_block", "i8"), ("blocks", "i8"), ("depth", "i8")], align=True)
"""A piece of prompt that several requests begin with. Its blocks are those that are full by its end."""

CACHED: Final = np.dtype(
    [
        ("after", "i8"),  # neighbours among cached free blocks, while nobody holds it
        ("before", "i8"),
        ("builder", "i8"),  # one plus the row that computes it for everybody
        ("junk", "i8"),
        ("blocks", "i8"),  # cached
        ("users", "i8"),  # requests that hold it
        ("doubles", "i8"),  # of those, the ones that hold its beginning and compute the rest themselves
        ("since_s", "f8"),  # when it was begun to be computed
    ],
    align=True,
)
"""A segment on one replica."""

CONTROL: Final = np.dtype(
    [
        ("next_row", "i8"),  # next arrival
        ("known_rows", "i8"),  # rows whose arrival time is known
        ("loaded_rows", "i8"),
        ("final", "u1"),  # no more rows will be loaded
        ("closed", "u1"),  # users send their next request when one is answered
        ("pauses", "u1"),  # but not as soon as an engine ends one: they think, or the answer is on its way to them
        ("routed", "u1"),  # by a picker that knows only what it sees
        ("first_of_equals", "u1"),  # the all-knowing router takes the first of equal replicas, and not each in turn
        ("policy", "u1"),
        ("users", "i8"),  # of a closed loop
        ("now_s", "f8"),
        ("turn", "i8"),  # of round robin
        ("in_flight", "i8"),
        ("transferring", "i8"),
        ("log_size", "i8"),
        ("width_s", "f8"),  # of a timeline column
        ("stop_waiting", "i8"),
        ("chosen", "i8"),  # by whoever was asked; UNASKED before
        ("sampled_every", "i8"),  # picks between two that are shown outside; 0: none is
        ("report_s", "f8"),  # between two reports, whoever they are of
        ("report_delay_s", "f8"),
        ("report_loss", "f8"),
        ("reports_asked", "i8"),
        ("reports_seen", "i8"),
        ("cache_delay_s", "f8"),  # until the picker knows of a prefix that was computed
        ("next_fault", "i8"),
        ("look_s", "f8"),  # when a report or a fault is due next: until then pickers need not be told anything
        ("hits_said", "u1"),  # whether `hits` is that of a prompt that shares something
    ],
    align=True,
)

EVENT: Final = np.dtype(
    [
        ("start_s", "f8"),
        ("seconds", "f8"),
        ("replica", "i8"),
        ("steps", "i8"),
        ("decodes", "i8"),
        ("prefill_tokens", "i8"),
        ("used_blocks", "i8"),
        ("waiting", "i8"),
    ],
    align=True,
)

PROMISE: Final = np.dtype(
    [
        ("ttft_s", "f8"),
        ("tpot_s", "f8"),
        ("e2e_s", "f8"),
        ("weight", "f8"),
        ("sheddable", "i8"),
        ("limit_tokens", "i8"),
    ],
    align=True,
)
"""What requests of a class are promised, as the picker is told."""

DIES, RETURNS, CHANGES_SPEED, STOPS_REPORTING, REPORTS_AGAIN, IS_NOTICED = range(6)
FAULT: Final = np.dtype([("at_s", "f8"), ("replica", "i8"), ("kind", "i8"), ("factor", "f8")], align=True)
"""Something that happens to a replica; `factor` is how many times longer its steps are from then on."""

TIMELINE: Final = 512
"""Columns of the timeline; when the run outgrows them, two become one."""
BUSY, RUNNING, QUEUED, USED, PROMPT, OUTPUT = range(6)
"""What a timeline column sums: seconds, requests x s, requests x s, blocks x s, tokens, tokens."""

BINS_PER_E: Final = 1000
"""Bins of a latency histogram for each factor of e: 0.1% wide."""
MIN_S: Final = 1e-6
BINS: Final = 30 * BINS_PER_E
"""One microsecond to 10 million seconds."""


class World(NamedTuple):
    """The arrays of a run. Rows are addressed by their number modulo a power of two, so that any number can pass."""

    control: Any
    rows: Any
    replicas: Any
    ends: Any
    """`end_s` of the replicas, side by side: the next of them is looked for at every event."""
    wakes: Any
    """Heap of when the users who think, or wait for the rest of an answer, will send their next request."""
    pauses: Any
    """Of users for whom there is no further row: before it, a row says its own."""
    heads: Any
    """First scheduler of each engine: what has an address, and a picker can name."""
    costs: Any
    limits: Any
    """Tokens each kind of attention reads at most, by cost and kind."""
    context_s: Any
    pair_s: Any
    contexts: Any
    """Sum of min(context, limit) over the decoding requests, by replica and kind."""
    growing: Any
    """Decoding requests whose context is below the limit, by replica and kind."""
    phases: Any
    """Decoding requests by where in a block they are: (context - step) modulo the block."""
    calendar: Any
    """By replica and step modulo its size: first event of that step."""
    chain: Any
    """By row and kind: the next event of the same step. Kind 0 is a finish, kind k leaving limit k - 1."""
    segments: Any
    """By pool, whose block size decides which blocks are whose."""
    cached: Any
    path: Any
    """Scratch: one prompt's segments from the root."""
    leaving: Any
    """Scratch: the requests that finish in a step."""
    tokens_between: Any
    """Histogram of the time between tokens, by pool."""
    timeline: Any
    log: Any
    endpoints: Any
    """What each picker knows, by picker and engine."""
    flights: Any
    """What the picker remembers of each row."""
    reports: Any
    """On their way, by picker and number modulo its size."""
    request: Any
    hits: Any
    parameters: Any
    lengths: Any
    promises: Any
    faults: Any


Rows = npt.NDArray[np.void]


def power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is not less."""
    return 1 << max(0, int(at_least) - 1).bit_length()
