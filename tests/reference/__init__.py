"""The yardstick of the fast simulator: a slow engine that executes every step, and random work for both."""

from reference.engine import (
    Cost,
    ReferenceCost,
    ReferenceRequest,
    ReferenceResult,
    ReferenceSettings,
    RequestOutcome,
    Step,
    simulate,
    step_seconds,
)

__all__ = [
    "Cost",
    "ReferenceCost",
    "ReferenceRequest",
    "ReferenceResult",
    "ReferenceSettings",
    "RequestOutcome",
    "Step",
    "simulate",
    "step_seconds",
]
