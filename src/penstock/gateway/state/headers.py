"""Names the headers that Envoy and pickers exchange.

Of these headers, clients can set only hints: tenant, objective, TTFT and TPOT.
"""

from typing import Final

DESTINATION: Final = "x-gateway-destination-endpoint"
"""Header with the destinations: one address, or several in order (Gateway API Inference Extension, 004)."""
SUBSET: Final = "x-gateway-destination-endpoint-subset"
SERVED: Final = "x-gateway-destination-endpoint-served"
TICKET: Final = "x-penstock-ticket"
"""Header with the ticket, the number of a picker's decision. Envoy logs the ticket when the request ends."""
PICKER: Final = "x-penstock-picker"
MODEL: Final = "x-penstock-model"
"""Header with the model that a request is for. It selects the cluster."""
LENGTH: Final = "x-penstock-length"
"""Header with the size of the whole body in bytes, for a picker that gets only the beginning of the body."""
SHOWN_BYTES: Final = 64 * 2**10
"""Number of body bytes that Envoy sends a picker by ext_authz, if the fleet serves only one model."""
REASON: Final = "x-penstock-reason"
TRY_TIMEOUT: Final = "x-envoy-upstream-rq-per-try-timeout-ms"
"""Header with the milliseconds that an endpoint may be silent before Envoy asks whether the endpoint is alive."""
MAX_RETRIES: Final = "x-envoy-max-retries"
"""Header with the number of tries after the first try. Liveness questions to the picker count as tries."""
ATTEMPT: Final = "x-envoy-attempt-count"
"""Header with the number of the current try, counted from 1."""
WHOLE: Final = "x-penstock-whole"
"""Header that marks requests not known to be streamed. An unstreamed response may be silent until its last token."""
ASK_AGAIN: Final = "x-penstock-ask-again"
"""Response header with the seconds until Envoy asks again about a silent endpoint."""
TENANT: Final = ("x-penstock-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
OBJECTIVE: Final = ("x-penstock-objective", "x-llm-d-inference-objective", "x-gateway-inference-objective")
TTFT_MS: Final = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TPOT_MS: Final = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")
READ: Final = (LENGTH, *TENANT, *OBJECTIVE, *TTFT_MS, *TPOT_MS)
"""Request headers that Envoy sends a picker in addition to method and path.

Envoy never sends credentials to a picker.
"""
SET_UPSTREAM: Final = (DESTINATION, TICKET, PICKER, MODEL, TRY_TIMEOUT, MAX_RETRIES, WHOLE)
FAILED: Final = "x-envoy-auth-failure-mode-allowed"
"""Header that Envoy sets on a request if no picker answered."""
STRIPPED: Final = (DESTINATION, SUBSET, SERVED, TICKET, PICKER, MODEL, LENGTH, FAILED, WHOLE)
"""Headers that are removed from a client's request before any other filter sees the request.

Envoy itself removes the retry and timeout headers (`x-envoy-max-retries`, TRY_TIMEOUT and similar), because no client
address counts as internal.
"""
