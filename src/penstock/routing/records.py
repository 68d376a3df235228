"""What does a router know? The records of an endpoint, a request, a request on its way, and the policy's parameters.

An endpoint's record keeps apart what is fixed, what it *reported* (old by the time it is read), what the picker knows
*itself* (exact, but only its own requests), what it *learned* by comparing observed with predicted seconds, and what
*follows* from all that, which `ledger.refresh` computes when something changes and not at every pick. What a pick reads
lies together, so that a hundred endpoints stay in the processor's cache. No record has the
true length of an answer: nobody knows it before the answer ends.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CLASSES: Final = 4
"""Classes of requests whose promises are kept apart at an endpoint; later ones share the last place."""
TUNING: Final = 8
"""Numbers a peer's formula or a user's own policy may take."""
REJECTED: Final = -1
"""What `pick` returns when no endpoint is to serve a request."""
EVERYBODYS, OWN, ANOTHERS = range(3)
"""Who sends to an endpoint first, where several pickers share nothing: each knows all that is at its own."""
USUAL_TTFT_S: Final = 10.0
USUAL_TPOT_S: Final = 0.1
"""What a request that is promised nothing is judged by, so that it goes where it is served soonest."""

ENDPOINT: Final = np.dtype(
    [
        # Fixed: what it is.
        ("pool", "i8"),
        ("vendor", "i8"),  # or any other domain that fails together
        ("block_tokens", "i8"),
        ("max_running", "i8"),
        ("usd_per_s", "f8"),
        ("step_s", "f8"),  # of a step, whatever is in it
        ("prompt_step_s", "f8"),  # more for a step with a prompt in it
        ("expert_s", "f8"),  # to read all experts
        ("expert_miss", "f8"),  # chance that one token does not visit a given expert
        # Fixed, and asked for at every pick.
        ("whose", "i8"),  # of several pickers that share nothing: EVERYBODYS, OWN or ANOTHERS to send to first
        ("saved_usd_per_s", "f8"),  # what a second without work saves: 0 where it is paid whether it is used or not
        ("first_token_ratio", "f8"),  # first tokens as clients see them, over the steps they took
        ("request_s", "f8"),  # outside the engine, of every request
        ("step_tokens", "i8"),  # tokens of its largest step
        ("accepts", "i8"),  # 0 while it is down, draining or not yet up
        ("serves", "i8"),  # one bit per model
        ("decodes", "i8"),  # 0 where answers are computed elsewhere and only prompts are kept
        ("max_context_tokens", "i8"),  # prompt and answer of one request
        ("kv_tokens", "i8"),
        ("sequence_s", "f8"),  # more for each request that decodes
        ("context_token_s", "f8"),  # more for each token those have behind them
        ("prompt_token_s", "f8"),
        ("prompt_pair_s", "f8"),  # for each pair of prompt token and token it sees
        # Learned: observed seconds over predicted ones.
        ("prefill_correction", "f8"),
        ("decode_correction", "f8"),
        # What follows: `ledger.refresh` computes it from the above.
        ("tpot_now_s", "f8"),  # a token as residents see it once all prompts are done, prompts in between included
        ("stretch", "f8"),  # seconds per second of decoding, prompts in between included
        ("swing_s", "f8"),  # what chance adds to the seconds per token of an answer of one token: less of longer ones
        ("stall_per_prompt_s", "f8"),  # what a second of prompt adds to a resident's seconds per token
        ("strain_per_s", "f8"),  # what residents suffer at least for each second that a token takes longer
        ("wait_s", "f8"),  # until the prompts that are ahead are done
        ("seats_wait_s", "f8"),  # until one of its seats is free, where all are taken
        ("free_tokens", "f8"),
        ("drain_tokens_per_s", "f8"),  # KV freed by residents that finish
        ("carry_s", "f8"),  # a step that carries a prompt, beside the prompt's own seconds
        # Own, and asked for at every pick.
        ("residents", "i8", (CLASSES,)),  # in flight, by class
        ("decode_now_s", "f8"),  # what follows as well: a step that only decodes what is there, corrected
        ("resident_tpot_s", "f8"),  # a token as residents see it, chance included
        # Learned: from how many requests.
        ("prompts_seen", "f8"),
        ("answers_seen", "f8"),
        ("forgot_s", "f8"),  # when it was last looked at what to forget
        ("forgot_share", "f8"),  # when some last was: what had been sent by then to each of those that serve its models
        ("forgot_sent", "i8"),  # and to itself
        # Reported: what it said, and when that was so.
        ("reported_s", "f8"),  # minus infinity: never
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_used_tokens", "i8"),
        # Own: what the picker did itself.
        ("sent", "i8"),  # ever
        ("in_flight", "i8"),  # sent there and not finished
        ("prefilling", "i8"),  # of those, without a first token
        ("sent_since_report", "i8"),
        ("outstanding_prompt_tokens", "i8"),  # of those without a first token, as far as not cached
        ("outstanding_prompt_s", "f8"),  # the same as predicted seconds
        ("resident_tokens", "i8"),  # prompts and half the expected answers of those in flight
        ("resident_output_tokens", "i8"),  # expected answers of those in flight
        ("prompt_load_fraction", "f8"),  # of the last seconds, the share that prompts took
        ("prompt_squares_s", "f8"),  # squares of prompts' seconds, over those seconds
        ("prompt_load_s", "f8"),  # when that was so
        ("in_flight_then", "i8"),  # the same at the time of the last report
        ("prefilling_then", "i8"),
        ("resident_tokens_then", "i8"),
    ],
    align=True,
)

REQUEST: Final = np.dtype(
    [
        ("now_s", "f8"),
        ("model", "i8"),  # the bit of ENDPOINT.serves
        ("input_tokens", "i8"),
        ("expected_output_tokens", "i8"),  # learned from what was seen, never the truth
        ("output_limit_tokens", "i8"),  # what the client allows; 0 where it says nothing
        ("ttft_s", "f8"),  # promised; infinity where nothing is
        ("tpot_s", "f8"),
        ("e2e_s", "f8"),  # promised for the last token, whatever the answer's length
        ("weight", "f8"),  # what its miss counts, 1 for an ordinary one
        ("slo_class", "i8"),
        ("tenant", "i8"),
        ("sheddable", "i8"),  # 1: may be rejected when nobody can keep its promise
        ("number", "i8"),  # among the picker's requests
        ("turn", "i8"),  # not negative, different for every request: where looking begins, so that ties are shared
    ],
    align=True,
)

FLIGHT: Final = np.dtype(
    [
        ("endpoint", "i8"),  # REJECTED: nowhere
        ("sent_s", "f8"),
        ("first_s", "f8"),  # when its first token was seen
        ("input_tokens", "i8"),
        ("uncached_tokens", "i8"),  # of its prompt, as believed when it was sent
        ("expected_output_tokens", "i8"),
        ("slo_class", "i8"),
        ("prompt_s", "f8"),  # predicted seconds of its prompt alone, uncorrected
        ("ttft_s", "f8"),  # predicted when it was sent
        ("decode_s", "f8"),  # a step predicted at its first token, uncorrected
    ],
    align=True,
)
"""What the picker remembers of a request until it is answered."""

REPORT: Final = np.dtype(
    [
        ("asked_s", "f8"),  # minus infinity: it was lost
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_used_tokens", "i8"),
        ("sent", "i8"),  # these four: what the picker knew itself when it asked
        ("in_flight", "i8"),
        ("prefilling", "i8"),
        ("resident_tokens", "i8"),
    ],
    align=True,
)
"""What an endpoint answers when it is asked how it is."""

PARAMETERS: Final = np.dtype(
    [
        ("doubt_fraction", "f8"),  # relative error of a predicted time
        ("miss_usd", "f8"),  # what a missed promise costs, beside dollars that not using an endpoint saves
        ("full_tokens_fraction", "f8"),  # of the KV cache, from which on every token more is harm
        ("load_s", "f8"),  # seconds over which the share of prompts is averaged
        ("correction_requests", "f8"),  # that a correction remembers: its own, or its share of those sent elsewhere
        ("stale_s", "f8"),  # a report older than this says nothing about others any more
        ("shed_fraction", "f8"),  # chance to miss from which a sheddable request is rejected
        ("trespass_misses", "f8"),  # missed promises at its own endpoints that send a picker to another's
        ("pickers", "f8"),  # that share the endpoints without sharing what they know
        ("class_tpot_s", "f8", (CLASSES,)),  # what residents of a class are promised
        ("class_e2e_s", "f8", (CLASSES,)),  # and for the whole answer
        ("class_weight", "f8", (CLASSES,)),  # what the miss of one counts
        ("tuning", "f8", (TUNING,)),  # of a peer's formula or a user's own policy
    ],
    align=True,
)

Record = Any
"""One of these records, whose fields have no types outside compiled code."""
Records = NDArray[Any]
"""An array of them."""


def new_endpoints(count: int) -> Records:
    """Return endpoints nobody has heard of, which take any request of model 0."""
    endpoints = np.zeros(count, ENDPOINT)
    endpoints["accepts"] = endpoints["serves"] = endpoints["decodes"] = 1
    endpoints["reported_s"] = -np.inf
    for name in ("first_token_ratio", "prefill_correction", "decode_correction", "stretch"):
        endpoints[name] = 1.0
    for name in ("kv_tokens", "max_context_tokens", "max_running", "step_tokens"):
        endpoints[name] = 2**40
    endpoints["block_tokens"] = 1
    return endpoints


def new_request() -> Records:
    """Return one request of model 0 that is promised nothing."""
    request = np.zeros(1, REQUEST)
    request["model"] = request["weight"] = 1
    request["ttft_s"] = request["tpot_s"] = request["e2e_s"] = np.inf
    return request


def default_parameters() -> Records:
    """Return the parameters; docs/routing.md shows how flat the results are around each."""
    parameters = np.zeros(1, PARAMETERS)
    parameters["doubt_fraction"] = 1 / 16
    parameters["miss_usd"] = 1.0
    parameters["full_tokens_fraction"] = 0.9
    parameters["load_s"] = 10.0
    parameters["correction_requests"] = 50.0
    parameters["stale_s"] = 5.0
    parameters["shed_fraction"] = 0.9
    parameters["trespass_misses"] = 30.0
    parameters["pickers"] = 1.0
    parameters["class_tpot_s"] = parameters["class_e2e_s"] = np.inf
    parameters["class_weight"] = 1.0
    return parameters
