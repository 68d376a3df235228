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
REASON: Final = "x-penstock-reason"
TRY_TIMEOUT: Final = "x-envoy-upstream-rq-per-try-timeout-ms"
"""Header with the milliseconds that an endpoint may be silent before Envoy tries another one too."""
MAX_RETRIES: Final = "x-envoy-max-retries"
"""Header with the number of tries after the first try."""
RETRIED: Final = "x-envoy-retriable-status-codes"
"""Header with further statuses with which Envoy tries another endpoint."""
STREAMED: Final = "x-penstock-streamed"
"""Header that marks requests for a stream. Any other response may be silent until its last token."""
TENANT: Final = ("x-penstock-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
OBJECTIVE: Final = ("x-penstock-objective", "x-llm-d-inference-objective", "x-gateway-inference-objective")
TTFT_MS: Final = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TPOT_MS: Final = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")
STRIPPED: Final = (DESTINATION, SUBSET, SERVED, TICKET, PICKER, MODEL, STREAMED)
"""Headers that are removed from a client's request before any other filter sees the request.

Envoy itself removes the retry and timeout headers (`x-envoy-max-retries`, TRY_TIMEOUT and similar), because no client
address counts as internal.
"""
