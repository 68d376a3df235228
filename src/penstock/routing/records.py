"""Defines the router's records: an endpoint, a request, a request in flight, a report, and the policy's parameters.

The record of an endpoint has five groups of fields. Fixed fields are properties of the endpoint. Reported fields are
the endpoint's state at the last report, which may be out of date. Own counts are exact, but include only requests of
this picker. Learned fields are corrections from observed and predicted seconds. Derived fields are computed by
`endpoint_updates.refresh` when another field changes, not at every pick. Fields read by a pick are adjacent, so that
the records of a hundred endpoints stay in the processor's cache. No record has the true length of an answer, because
the length is unknown before the answer ends.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.workload import Overload

CLASSES: Final = 4
"""Number of SLO classes that are counted separately at an endpoint.

All further classes are counted together with the last one.
"""
TUNING: Final = 8
"""Number of free parameters for a peer's formula or a user's own policy."""
REJECTED: Final = -1
"""Return value of `pick` if no endpoint is to serve a request."""
SERVE, REFUSE, HOLD = range(3)
OVERLOAD: Final[dict[Overload, int]] = {"serve": SERVE, "refuse": REFUSE, "hold": HOLD}
"""What may be done with a request that does more harm than good: serve it, refuse it, or hold it, then refuse it."""
SHED_FRACTION: Final = 0.5
"""Probability of a missed SLO above which a sheddable request is shed, because serving it would delay other requests.

For a tenant beyond its fair share, the threshold is multiplied by the tenant's weight. Simulations compared three
values at a load of 150% of capacity. In these simulations, one tenant sent 90% of the requests, all of them sheddable.
Goodput was 1,861 tokens/s with 0.9, 2,073 tokens/s with 0.5, and 2,011 tokens/s with 0.2. With
these three thresholds, the SLO attainment of the other tenant was 77%, 99% and 100%. Each simulation had 6,000 requests
to llama-3.1-70b on one H100 pair and one MI300X.
"""
EVERYBODYS, OWN, ANOTHERS = range(3)
"""Owner of an endpoint, if several pickers do not share their state.

A picker prefers endpoints that it owns, because it knows all requests at these endpoints.
"""
USUAL_TTFT_S: Final = 10.0
USUAL_TPOT_S: Final = 0.1
"""Default latency limits for a request without an SLO.

With limits, the request goes to the endpoint that serves it soonest.
"""

ENDPOINT: Final = np.dtype(
    [
        # Fixed: properties of the endpoint.
        ("pool", "i8"),
        ("vendor", "i8"),  # or any other failure domain
        ("block_tokens", "i8"),
        ("max_running", "i8"),
        ("usd_per_s", "f8"),
        ("step_s", "f8"),  # of any step
        ("prompt_step_s", "f8"),  # added to a step with a prompt in it
        ("expert_s", "f8"),  # to read all experts
        ("expert_miss", "f8"),  # probability that one token does not visit a given expert
        # Fixed, and read by every pick.
        ("whose", "i8"),  # EVERYBODYS, OWN or ANOTHERS: owner, if several pickers share no state
        ("relative_capacity", "f8"),  # rate of usual requests, relative to the weakest endpoint with this model
        ("saved_usd_per_s", "f8"),  # dollars saved per idle second: 0 if the endpoint is paid for anyway
        ("first_token_ratio", "f8"),  # client's time to first token over the steps it took
        ("request_s", "f8"),  # seconds outside the engine, per request
        ("step_tokens", "i8"),  # tokens of its largest step
        ("accepts", "i8"),  # 0 while it is down, draining or not yet up
        ("serves", "i8"),  # one bit per model
        ("decodes", "i8"),  # 0 if it only prefills and answers are decoded elsewhere
        ("max_context_tokens", "i8"),  # maximum prompt plus answer of one request
        ("kv_tokens", "i8"),
        ("sequence_s", "f8"),  # added to a step per decoding request
        ("context_token_s", "f8"),  # added to a step per context token of decoding requests
        ("prompt_token_s", "f8"),
        ("prompt_pair_s", "f8"),  # per pair of prompt token and token it attends to
        # Learned: ratio of observed to predicted seconds.
        ("prefill_correction", "f8"),
        ("decode_correction", "f8"),
        # Derived: `endpoint_updates.refresh` computes them from the fields above.
        ("tpot_now_s", "f8"),  # time per token of residents once all queued prompts are done, with delay by new prompts
        ("stretch", "f8"),  # seconds per second of decoding, with delay by new prompts
        ("swing_s", "f8"),  # random delay per token for an answer of one token; smaller for longer answers
        ("stall_per_prompt_s", "f8"),  # seconds that a second of prompt adds to a resident's time per token
        ("strain_per_s", "f8"),  # lower bound of the harm to residents per added second per token
        ("wait_s", "f8"),  # until the queued prompts are done
        ("ready_in_s", "f8"),  # seconds until the endpoint's model is awake; 0 while it is, or if it never sleeps
        ("seats_wait_s", "f8"),  # until a seat is free, if all are taken
        ("free_tokens", "f8"),
        ("drain_tokens_per_s", "f8"),  # KV tokens freed per second by residents that finish, while the cache is full
        ("carry_s", "f8"),  # duration of a step that carries a prompt, without the prompt's own seconds
        # Own, and read by every pick.
        ("residents", "i8", (CLASSES,)),  # in flight, by class
        ("others", "f8"),  # derived too: requests of other pickers that are there
        ("decode_now_s", "f8"),  # derived too: a step that only decodes the current residents, corrected
        ("resident_tpot_s", "f8"),  # time per token of residents, with random delay
        # Learned: number of requests observed.
        ("prompts_seen", "f8"),
        ("answers_seen", "f8"),
        ("forgot_s", "f8"),  # time of the last check whether to forget
        ("forgot_share", "f8"),  # value of `_share` in corrections when it last forgot
        ("forgot_sent", "i8"),  # value of `sent` at that time
        # Reported: state at `reported_s`.
        ("reported_s", "f8"),  # minus infinity: never
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_used_tokens", "i8"),
        # Own: counts of the picker's own requests.
        ("sent", "i8"),  # total
        ("in_flight", "i8"),  # sent and not finished
        ("prefilling", "i8"),  # in flight without a first token
        ("sent_since_report", "i8"),
        ("outstanding_prompt_tokens", "i8"),  # uncached prompt tokens of requests without a first token
        ("outstanding_prompt_s", "f8"),  # predicted prefill seconds of requests without a first token
        ("resident_tokens", "i8"),  # uncached prompts and half the expected answers of requests in flight
        ("shared_tokens", "i8"),  # cached prompt tokens of requests in flight, read by each of them
        ("resident_output_tokens", "i8"),  # expected answers of requests in flight
        ("prompt_load_fraction", "f8"),  # decayed share of the time taken by prompts
        ("prompt_squares_s", "f8"),  # decayed sum of squared prompt seconds per second
        ("decoded_tokens", "f8"),  # decayed sum of the tokens that its residents have decoded, as predicted
        ("ended_answers", "f8"),  # decayed count of answers that ended, or were broken off
        ("prompt_load_s", "f8"),  # time of the last update of these four
        ("in_flight_then", "i8"),  # these three: the counts above at the time of the last report
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
        ("expected_output_tokens", "i8"),  # estimated from past requests, never the true length
        ("output_limit_tokens", "i8"),  # limit set by the client; 0 if none
        ("ttft_s", "f8"),  # SLO; infinity if none
        ("tpot_s", "f8"),
        ("e2e_s", "f8"),  # SLO for the last token, whatever the answer's length
        ("weight", "f8"),  # weight of a missed SLO; 1 for an ordinary request
        ("slo_class", "i8"),
        ("tenant", "i8"),
        ("sheddable", "i8"),  # SERVE, or REFUSE or HOLD: may be rejected if serving it does more harm than good
        ("number", "i8"),  # index among the picker's requests
        ("turn", "i8"),  # random, not negative: the endpoint at which the search starts, so that ties are shared
        ("waited_s", "f8"),  # seconds that it was held at the gateway; they count towards its SLO
    ],
    align=True,
)

FLIGHT: Final = np.dtype(
    [
        ("endpoint", "i8"),  # REJECTED: none
        ("sent_s", "f8"),
        ("first_s", "f8"),  # when its first token was seen
        ("input_tokens", "i8"),
        ("uncached_tokens", "i8"),  # of its prompt, as estimated when it was sent
        ("expected_output_tokens", "i8"),
        ("slo_class", "i8"),
        ("prompt_s", "f8"),  # predicted seconds of the request's own prefill, uncorrected
        ("ttft_s", "f8"),  # predicted when it was sent
        ("decode_s", "f8"),  # a step predicted at its first token, uncorrected
        ("waited_s", "f8"),  # held at the gateway before it was sent
        ("ttft_limit_s", "f8"),  # these three: its SLO; infinity if none
        ("tpot_limit_s", "f8"),
        ("e2e_limit_s", "f8"),
    ],
    align=True,
)
"""The picker's record of a request in flight."""

REPORT: Final = np.dtype(
    [
        ("asked_s", "f8"),  # minus infinity: the report was lost
        ("running", "i8"),
        ("waiting", "i8"),
        ("kv_used_tokens", "i8"),
        ("sent", "i8"),  # these four: the picker's own counts when it requested the report
        ("in_flight", "i8"),
        ("prefilling", "i8"),
        ("resident_tokens", "i8"),
    ],
    align=True,
)
"""A report of an endpoint's state."""

PARAMETERS: Final = np.dtype(
    [
        ("doubt_fraction", "f8"),  # relative uncertainty of a predicted time
        ("miss_usd", "f8"),  # cost of a missed SLO in dollars, to convert dollars saved by idle endpoints
        ("full_tokens_fraction", "f8"),  # share of the KV cache above which every added token is harm
        ("load_s", "f8"),  # seconds over which the share of prompts is averaged
        ("correction_requests", "f8"),  # requests that a correction remembers: its own, or its share of others'
        ("stale_s", "f8"),  # age in seconds above which a report is ignored
        ("shed_fraction", "f8"),  # probability of a miss above which a sheddable request is rejected
        ("trespass_misses", "f8"),  # harm in missed SLOs at its own endpoints at which a picker uses another's
        ("pickers", "f8"),  # number of pickers that share the endpoints but no state
        ("class_tpot_s", "f8", (CLASSES,)),  # SLO of residents by class
        ("class_e2e_s", "f8", (CLASSES,)),  # SLO for the whole answer of residents, by class
        ("class_weight", "f8", (CLASSES,)),  # weight of a missed SLO by class
        ("given_up_misses", "f8"),  # harm in missed SLOs of giving up all requests at the weakest endpoint
        ("class_requests", "f8", (CLASSES,)),  # decayed count of the picker's requests by class
        ("class_admitted", "f8", (CLASSES,)),  # decayed count of those that were sent to an endpoint
        ("class_kept", "f8", (CLASSES,)),  # decayed share of ended and refused requests that met their SLO
        ("class_outcomes", "f8", (CLASSES,)),  # number of requests in that share
        ("class_price", "f8", (CLASSES,)),  # at least 1: rises while a class meets its SLO less often than others
        ("class_factor", "f8", (CLASSES,)),  # derived: factor of `class_weight`, from price and share of the requests
        ("class_share", "f8", (CLASSES,)),  # derived: share of the picker's requests by class
        ("class_output_tokens", "f8", (CLASSES,)),  # learned: mean expected tokens of an answer
        ("class_length_doubt", "f8", (CLASSES,)),  # learned: relative uncertainty of the length of an answer
        ("price_slope", "f8"),  # logarithm of the price that a gap of 1 in attainment leads to; 0: all prices are 1
        ("admission_misses", "f8"),  # harm in misses of its own above which a request is refused or held, if it may be
        ("tuning", "f8", (TUNING,)),  # of a peer's formula or a user's own policy
    ],
    align=True,
)

LEARNED_OF_CLASSES: Final = (
    *("class_requests", "class_admitted", "class_kept", "class_outcomes", "class_price", "class_factor"),
    *("class_output_tokens", "class_length_doubt"),
)
"""Parameters that a picker learns. A reload of the fleet keeps them."""

Record = Any
"""One record of any of these types. Outside compiled code, the fields of a record have no types."""
Records = NDArray[Any]
"""An array of records."""


def new_endpoints(count: int) -> Records:
    """Return endpoints without reports, which accept any request of model 0."""
    endpoints = np.zeros(count, ENDPOINT)
    endpoints["accepts"] = endpoints["serves"] = endpoints["decodes"] = 1
    endpoints["reported_s"] = -np.inf
    for name in ("first_token_ratio", "relative_capacity", "prefill_correction", "decode_correction", "stretch"):
        endpoints[name] = 1.0
    for name in ("kv_tokens", "max_context_tokens", "max_running", "step_tokens"):
        endpoints[name] = 2**40
    endpoints["block_tokens"] = 1
    return endpoints


def new_request() -> Records:
    """Return one request of model 0 without an SLO."""
    request = np.zeros(1, REQUEST)
    request["model"] = request["weight"] = 1
    request["ttft_s"] = request["tpot_s"] = request["e2e_s"] = np.inf
    return request


def default_parameters() -> Records:
    """Return the default parameters. Results depend little on each: tools/results/routing-flatness.csv."""
    parameters = np.zeros(1, PARAMETERS)
    parameters["doubt_fraction"] = 1 / 16
    parameters["miss_usd"] = 1.0
    parameters["full_tokens_fraction"] = 0.9
    parameters["load_s"] = 10.0
    parameters["correction_requests"] = 50.0
    parameters["stale_s"] = 5.0
    parameters["shed_fraction"] = SHED_FRACTION
    parameters["trespass_misses"] = 30.0
    parameters["pickers"] = 1.0
    parameters["class_tpot_s"] = parameters["class_e2e_s"] = np.inf
    parameters["class_weight"] = parameters["class_factor"] = parameters["class_price"] = 1.0
    parameters["class_kept"] = 1.0
    parameters["class_length_doubt"] = 0.5
    parameters["price_slope"] = 4.0
    parameters["admission_misses"] = 2.0
    parameters["given_up_misses"] = 3.0
    return parameters
