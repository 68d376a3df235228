"""Defines every array that the compiled loop works on."""

from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled.tables import ArrayOf
from penstock.routing.length_estimates import LENGTH
from penstock.routing.records import ENDPOINT, FLIGHT, PARAMETERS, REPORT, REQUEST

NONE: Final = -1
"""Index that means no row, no segment or no event."""
LOST: Final = -2
"""Index that means no replica, because the replica that served the request died after the request's first token."""
LEFT: Final = -3
"""Index that means no replica, because the client left before the request's first token."""
UNASKED: Final = -2
"""Choice that means that the policy has not been called for this request yet."""

WAITING: Final = 0
PREFILL: Final = 1
DECODE: Final = 2
DONE: Final = 3

SWAP_SLEEP, SWAP_WAKE = range(2)
EVICT_BY_USE, EVICT_BY_HARM = range(2)

ROW: Final = np.dtype(
    [
        ("number", "i8"),  # index among all sent requests, including those no replica could hold
        ("arrival_s", "f8"),
        ("queued_s", "f8"),  # when it joined the queue of its replica: after a KV transfer, later than its arrival
        ("tried_s", "f8"),  # when its client sent it last: later than its arrival if the client left and returned
        ("waited_s", "f8"),  # seconds in queues and in KV transfer, before its first token
        ("first_s", "f8"),  # end of the step with its first token
        ("last_s", "f8"),  # end of the step with its newest token
        ("after", "i8"),  # next row in the running list, in the waiting queue, or in transfer
        ("before", "i8"),  # previous row in the running list
        ("later", "i8"),  # neighbours among the requests whose clients may leave, by the time of sending
        ("earlier", "i8"),
        ("lru_after", "i8"),  # neighbours among cached free blocks, while preempted
        ("lru_before", "i8"),
        ("lag", "i8"),  # its tokens in KV minus the replica's step count: constant while it decodes
        ("lru_junk", "i8"),
        ("input_tokens", "i8"),
        ("output_tokens", "i8"),
        ("generated", "i8"),
        ("computed", "i8"),  # tokens in the KV cache, while it prefills
        ("shared", "i8"),  # blocks of its table that belong to segments
        ("own_cached", "i8"),  # its own full blocks still cached, while preempted
        ("leaf", "i8"),  # deepest segment of its prompt, shared or its own
        ("doubled", "i8"),  # segment that it computes although another request does too
        ("doubled_from", "i8"),  # blocks of that segment that it got from the cache
        ("entered", "i8"),  # number of segments it refers to, from the root
        ("hit_tokens", "i8"),  # cached prompt tokens at its first admission
        ("preempted", "i8"),  # number of preemptions
        ("picker", "i8"),
        ("replica", "i8"),  # NONE: refused; LOST: its replica died; LEFT: its client left
        ("pool", "i8"),  # NONE: any
        ("slo_class", "u1"),
        ("state", "u1"),
        ("building", "u1"),  # it computes the newest segment it entered, for all requests that share it
        ("received", "u1"),  # its prompt's KV came from a prefill replica
        ("cold", "u1"),  # its model had yet to wake when it arrived
        ("held", "u1"),  # it was held at the gateway
        ("tries", "u1"),  # how often its client returned
        ("may_leave", "u1"),  # its client waits for the first token and may leave
        ("left", "u1"),  # its client has left
        ("abandoned", "u1"),  # its client has left, and the engine has yet to stop its work
    ],
    align=True,
)

REPLICA: Final = np.dtype(
    [
        ("end_s", "f8"),  # when the steps in progress end; infinity when idle
        ("start_s", "f8"),
        ("first_step_s", "f8"),
        ("growth_s", "f8"),  # by how much each decode step is longer than the previous one
        ("busy_s", "f8"),
        ("running_s", "f8"),  # integral of running requests
        ("waiting_s", "f8"),  # integral of waiting requests
        ("counted_s", "f8"),  # time up to which waiting_s is integrated
        ("used_s", "f8"),  # integral of used blocks
        ("observed_s", "f8"),  # start of the step that ended last: later arrivals are not yet visible
        ("own_s", "f8"),  # where ranks step together: this rank's own share of the step in progress
        ("own_growth_s", "f8"),
        ("link_free_s", "f8"),  # when its outgoing KV link is idle
        ("request_s", "f8"),  # seconds outside the engine, per request
        ("first_ratio", "f8"),  # client's time to first token over the duration of the steps since admission
        ("slowness", "f8"),  # factor by which its steps are longer than its cost model says
        ("wake_s", "f8"),
        ("sleep_s", "f8"),
        ("patience_s", "f8"),  # time to first token that its requests may take
        ("rate_per_s", "f8"),  # decayed arrival rate at `used_at_s`
        ("used_at_s", "f8"),  # newest arrival, or end of its last wake
        ("wanting_s", "f8"),  # since when it waits for memory
        ("step", "i8"),  # engine steps ended
        ("steps", "i8"),  # steps in progress
        ("next_event", "i8"),  # step at which a decoding request finishes or fills an attention window
        ("free", "i8"),  # free blocks
        ("blank", "i8"),  # free blocks without cached content
        ("junk", "i8"),  # cached free blocks after the newest entry that no request can hit
        ("lru_first", "i8"),
        ("lru_last", "i8"),
        ("running_first", "i8"),
        ("running_last", "i8"),
        ("prefill_first", "i8"),  # first row of the running list that still prefills
        ("waiting_first", "i8"),
        ("waiting_last", "i8"),
        ("gone_first", "i8"),  # requests that ended in the last step and still hold blocks, linked by lru_after
        ("gone_last", "i8"),
        ("transfer_first", "i8"),
        ("transfer_last", "i8"),
        ("running", "i8"),
        ("decoding", "i8"),
        ("waiting", "i8"),
        ("prefill_tokens", "i8"),  # in the step in progress
        ("prompts", "i8"),  # prompts of more than one token in the step in progress
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
        ("context", "i8"),  # maximum tokens of prompt plus answer
        ("outstanding_tokens", "i8"),  # prompt tokens only, since answer lengths are unknown
        ("pool", "i8"),
        ("cost", "i8"),
        ("head", "i8"),  # first rank of the engine it belongs to
        ("ranks", "i8"),  # ranks of that engine
        ("rank_turn", "i8"),  # in the head: rank at which the next pick starts
        ("prompts_wait", "i8"),  # maximum steps for which prompts wait for the other ranks
        ("waited", "i8"),  # in the head: steps for which they have waited
        ("on_device", "i8"),  # the shared device on which it steps in turn; NONE: a device of its own
        ("next_on_device", "i8"),  # next replica of the device, in a circle
        ("swap_bytes", "i8"),  # memory that its model gives up when it sleeps
        ("cold_starts", "i8"),
        ("evictions", "i8"),
        ("caching", "u1"),
        ("prefills_only", "u1"),
        ("decodes_only", "u1"),
        ("down", "u1"),
        ("silent", "u1"),  # its reports do not arrive
        ("ahead", "u1"),  # schedules a step before the tokens of the previous one are known
        ("together", "u1"),  # the ranks of its engine end every step together
        ("residency", "u1"),  # of its model on a shared device
        ("kept_awake", "u1"),
        ("due", "u1"),  # waits for its turn on a shared device
        ("wanting", "u1"),  # waits for memory of a shared device
        ("draining", "u1"),  # admits no request, and sleeps when its running requests are done
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
"""Segment: a part of a prompt that several requests share.

A segment owns the blocks that are full at its end but not at its start.
"""

CACHED: Final = np.dtype(
    [
        ("after", "i8"),  # neighbours among cached free blocks, while no request holds it
        ("before", "i8"),
        ("builder", "i8"),  # one plus the row that computes it for all requests
        ("junk", "i8"),
        ("blocks", "i8"),  # cached blocks
        ("users", "i8"),  # requests that hold it
        ("doubles", "i8"),  # users that hold only its beginning and compute the rest for themselves
        ("since_s", "f8"),  # when its computation began
    ],
    align=True,
)
"""State of a segment on one replica."""

CONTROL: Final = np.dtype(
    [
        ("next_row", "i8"),  # next arrival
        ("known_rows", "i8"),  # rows whose arrival time is known
        ("loaded_rows", "i8"),
        ("final", "u1"),  # no more rows will be loaded
        ("closed", "u1"),  # closed loop: a user sends the next request after an answer
        ("pauses", "u1"),  # the next request is delayed by think time or by client lag
        ("routed", "u1"),  # by a picker with limited visibility
        ("first_of_equals", "u1"),  # the router with full information breaks ties by the first replica, not in turn
        ("policy", "u1"),
        ("users", "i8"),  # users of a closed loop
        ("now_s", "f8"),
        ("turn", "i8"),  # next replica in round robin
        ("in_flight", "i8"),
        ("transferring", "i8"),
        ("log_size", "i8"),
        ("width_s", "f8"),  # width of a timeline column
        ("stop_waiting", "i8"),
        ("chosen", "i8"),  # endpoint the policy chose; UNASKED before
        ("sampled_every", "i8"),  # every n-th pick is shown to the caller; 0: none
        ("report_s", "f8"),  # seconds between two reports of any endpoints
        ("report_delay_s", "f8"),
        ("report_loss", "f8"),
        ("reports_asked", "i8"),
        ("reports_seen", "i8"),
        ("cache_delay_s", "f8"),  # seconds until a picker knows of a prefix that is computed
        ("next_fault", "i8"),
        ("look_s", "f8"),  # time of the next report or fault: until then pickers need no update
        ("swaps", "i8"),  # entries in the log of swaps
        ("hits_said", "u1"),  # whether `hits` belongs to a prompt with shared segments
        ("arrived_s", "f8"),  # newest first arrival of a request
        ("held", "i8"),  # requests held at the gateway
        ("max_held", "i8"),
        ("max_tries", "i8"),  # how often a client returns that was refused or has left
        ("returning", "i8"),  # clients that will return
        ("may_leave", "i8"),  # clients that wait for a first token and may leave
        ("unseen", "i8"),  # first and last tokens that no client has seen yet
    ],
    align=True,
)

DEVICE: Final = np.dtype(
    [
        ("free_bytes", "i8"),
        ("least_free_bytes", "i8"),  # minimum of `free_bytes` in the run
        ("link_free_s", "f8"),  # when its link to the host is idle
        ("stepping", "i8"),  # replica whose steps are in progress
        ("models", "i8"),
        ("wanting", "i8"),  # replicas that wait for memory
        ("eviction", "i8"),
    ],
    align=True,
)
"""A device that several replicas share."""

SWAP: Final = np.dtype([("at_s", "f8"), ("ready_s", "f8"), ("replica", "i8"), ("kind", "i8")], align=True)
"""A model that goes to sleep or wakes: its memory changes hands at `at_s`, its weights are moved by `ready_s`."""

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
        ("overload", "i8"),  # SERVE, REFUSE or HOLD
        ("hold_s", "f8"),  # seconds for which a request may be held
        ("patience_s", "f8"),  # seconds for which a client waits for the first token
        ("limit_tokens", "i8"),
        ("model", "i8"),  # bit of the model that requests of the class ask for
    ],
    align=True,
)
"""SLO and priority of a class, as the picker receives them."""

CLASS_QUEUE: Final = np.dtype([("first", "i8"), ("last", "i8")], align=True)
"""Requests of a class, oldest first, linked through the rows."""
UNSEEN: Final = np.dtype([("at_s", "f8"), ("token", "i8")], align=True)
"""A token that its client sees at `at_s`: twice the number of the request, and one more for its last token."""

RETURN: Final = np.dtype([("at_s", "f8"), ("number", "i8")], align=True)
"""A client that will return."""

DIES, RETURNS, CHANGES_SPEED, STOPS_REPORTING, REPORTS_AGAIN, IS_NOTICED = range(6)
FAULT: Final = np.dtype([("at_s", "f8"), ("replica", "i8"), ("kind", "i8"), ("factor", "f8")], align=True)
"""A state change of a replica. `factor` multiplies the duration of the replica's steps from this time on."""

TIMELINE: Final = 512
"""Columns of the timeline. If a run is longer than the timeline, pairs of columns are merged."""
BUSY, RUNNING, QUEUED, USED, PROMPT, OUTPUT = range(6)
"""Sums in a timeline column.

The units of the six sums, in order, are seconds, requests x s, requests x s, blocks x s, tokens, and tokens.
"""

BINS_PER_E: Final = 1000
"""Number of bins of a latency histogram per factor of e, so that a bin is 0.1% wide."""
MIN_S: Final = 1e-6
BINS: Final = 30 * BINS_PER_E
"""Number of bins, which cover one microsecond to 10 million seconds."""


class World(NamedTuple):
    """The arrays of a run.

    Rows are addressed by their number modulo a power of two, so that a run may have any number of rows.
    """

    control: Annotated[Any, ArrayOf(CONTROL)]
    rows: Annotated[Any, ArrayOf(ROW)]
    replicas: Annotated[Any, ArrayOf(REPLICA)]
    ends: Annotated[Any, ArrayOf(np.float64)]
    """`end_s` of the replicas as a contiguous array, because every event searches it for the minimum."""
    wakes: Annotated[Any, ArrayOf(np.float64)]
    """Heap of the times at which users in think time, or waiting for the end of an answer, send their next request."""
    pauses: Annotated[Any, ArrayOf(np.float64)]
    """Think times of users for whom no loaded request is left. For a loaded request, its row holds the think time."""
    heads: Annotated[Any, ArrayOf(np.int64)]
    """Index of the first scheduler of each engine. An engine has one address, and a picker chooses an engine."""
    costs: Annotated[Any, ArrayOf(COST)]
    limits: Annotated[Any, ArrayOf(np.int64, 2)]
    """Maximum tokens that each kind of attention reads, by cost and kind."""
    context_s: Annotated[Any, ArrayOf(np.float64, 2)]
    pair_s: Annotated[Any, ArrayOf(np.float64, 2)]
    batch_factors: Annotated[Any, ArrayOf(np.float64, 2)]
    """Factor on the time of a step, by cost and number of decoding requests."""
    contexts: Annotated[Any, ArrayOf(np.int64, 2)]
    """Sum of min(context, limit) over the decoding requests, by replica and kind."""
    growing: Annotated[Any, ArrayOf(np.int64, 2)]
    """Number of decoding requests whose context is below the limit, by replica and kind."""
    phases: Annotated[Any, ArrayOf(np.int64, 2)]
    """Number of decoding requests by replica and by offset in a block.

    The offset is (context - step) modulo the block size.
    """
    calendar: Annotated[Any, ArrayOf(np.int64, 2)]
    """First event of a step, by replica and step modulo the calendar size."""
    chain: Annotated[Any, ArrayOf(np.int64, 2)]
    """Next event of the same step, by row and kind.

    Kind 0 is the end of a request; kind k means that its context reaches limit k - 1.
    """
    segments: Annotated[Any, ArrayOf(SEGMENT, 2)]
    """Segments by pool. The block size of a pool decides which blocks belong to a segment."""
    cached: Annotated[Any, ArrayOf(CACHED, 2)]
    path: Annotated[Any, ArrayOf(np.int64)]
    """Scratch: the segments of one prompt from the root."""
    leaving: Annotated[Any, ArrayOf(np.int64)]
    """Scratch: the requests that finish in a step."""
    tokens_between: Annotated[Any, ArrayOf(np.int64, 2)]
    """Histogram of the time between tokens, by pool."""
    timeline: Annotated[Any, ArrayOf(np.float64, 3)]
    log: Annotated[Any, ArrayOf(EVENT)]
    endpoints: Annotated[Any, ArrayOf(ENDPOINT, 2)]
    """State of each endpoint as each picker knows it, by picker and engine."""
    flights: Annotated[Any, ArrayOf(FLIGHT)]
    """The picker's record of each row."""
    reports: Annotated[Any, ArrayOf(REPORT, 2)]
    """Reports in transit, by picker and number modulo the buffer size."""
    request: Annotated[Any, ArrayOf(REQUEST)]
    hits: Annotated[Any, ArrayOf(np.int64)]
    parameters: Annotated[Any, ArrayOf(PARAMETERS, 2)]
    """Parameters of each picker, as an array of length one. They include the picker's counts of the classes."""
    lengths: Annotated[Any, ArrayOf(LENGTH, 2)]
    promises: Annotated[Any, ArrayOf(PROMISE)]
    held: Annotated[Any, ArrayOf(CLASS_QUEUE)]
    """Requests held at the gateway, by class."""
    may_leave: Annotated[Any, ArrayOf(CLASS_QUEUE)]
    """Requests whose clients wait for the first token and may leave, by class."""
    returns: Annotated[Any, ArrayOf(RETURN)]
    """Heap of the clients that will return, by time."""
    unseen: Annotated[Any, ArrayOf(UNSEEN)]
    """Heap of the first and last tokens that no client has seen yet, by time."""
    faults: Annotated[Any, ArrayOf(FAULT)]
    devices: Annotated[Any, ArrayOf(DEVICE)]
    swaps: Annotated[Any, ArrayOf(SWAP)]
    """Log of the swaps of models."""


Rows = npt.NDArray[np.void]


def power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is not less than `at_least`."""
    return 1 << max(0, int(at_least) - 1).bit_length()
