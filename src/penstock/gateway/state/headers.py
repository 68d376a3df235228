"""Which headers pass between Envoy and a picker? Each name once; clients can set none of them."""

from typing import Final

DESTINATION: Final = "x-gateway-destination-endpoint"
"""Where to send a request: one address, or several to try in this order (Gateway API Inference Extension, 004)."""
SUBSET: Final = "x-gateway-destination-endpoint-subset"
SERVED: Final = "x-gateway-destination-endpoint-served"
TICKET: Final = "x-penstock-ticket"
"""Which decision of which picker this is; Envoy's log repeats it when the answer ends."""
PICKER: Final = "x-penstock-picker"
MODEL: Final = "x-penstock-model"
"""The fleet's model a request is for; routes to its cluster."""
LENGTH: Final = "x-penstock-length"
"""Bytes of the whole body, where a picker sees only its beginning."""
SHOWN_BYTES: Final = 64 * 2**10
"""Bytes of a body that a picker behind ext_authz is shown, where one model is served."""
REASON: Final = "x-penstock-reason"
TRY_TIMEOUT: Final = "x-envoy-upstream-rq-per-try-timeout-ms"
"""How long an endpoint may be silent before the picker is asked whether it is alive."""
MAX_RETRIES: Final = "x-envoy-max-retries"
"""How many tries follow the first, questions to the picker included."""
ATTEMPT: Final = "x-envoy-attempt-count"
"""Which try this is, from 1 on."""
WHOLE: Final = "x-penstock-whole"
"""Set where an answer may come in one piece, and is silence until its last token."""
ASK_AGAIN: Final = "x-penstock-ask-again"
"""In how many seconds Envoy asks again about a silent endpoint."""
TENANT: Final = ("x-penstock-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
OBJECTIVE: Final = ("x-penstock-objective", "x-llm-d-inference-objective", "x-gateway-inference-objective")
TTFT_MS: Final = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TPOT_MS: Final = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")
READ: Final = (LENGTH, *TENANT, *OBJECTIVE, *TTFT_MS, *TPOT_MS)
"""What a picker is shown of a request's headers, besides its method and path. Never its credentials."""
SET_UPSTREAM: Final = (DESTINATION, TICKET, PICKER, MODEL, TRY_TIMEOUT, MAX_RETRIES, WHOLE)
FAILED: Final = "x-envoy-auth-failure-mode-allowed"
"""What Envoy says of a request that no picker was asked about."""
STRIPPED: Final = (DESTINATION, SUBSET, SERVED, TICKET, PICKER, MODEL, LENGTH, FAILED, WHOLE)
"""What is taken off a client's request before anything else sees it.

How often and how long to try (`x-envoy-max-retries`, TRY_TIMEOUT and their like) Envoy takes off by itself, because no
client's address counts as internal.
"""
