"""Describes speculative decoding: the tokens drafted per step, the tokens that a step yields, and the evidence."""

from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import DeploymentError
from penstock.performance.calibration.error_summary import Logs
from penstock.performance.prediction.serving_stack import Stack, Tier
from penstock.performance.step.drafting_step import drafting_step
from penstock.performance.step.first_token import LoopLoad
from penstock.performance.step.step_work import Array, ReplicaWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: the tokens drafted per step, and the tokens that a step yields."""

    drafted_tokens: int
    accepted_tokens: float
    """Tokens that a step yields per request, including the model's own token: from 1 to `drafted_tokens` + 1."""
    own_layers: bool = False
    """Whether the checkpoint's own multi-token-prediction layers draft, or the drafter of the measured runs. If so, the
    time of these layers is counted. The time of another drafter is not counted."""
    expected_tokens: float | None = None
    """Tokens that a step yields in measured runs, if the user stated other accepted tokens. None if not stated."""
    log_factor: float = 0.0
    """Natural logarithm of the ratio of the time of a drafting step to the time that its work predicts."""
    spread: Logs = (0.0, 0.0)
    """P10 and P90 of the error of the gain from drafts, as logarithms. They widen the spread of the time without
    drafts."""
    tier: Tier = "calibrated"
    grounds: str = "as given"

    def __post_init__(self) -> None:
        if not 0 <= self.drafted_tokens <= 64 or not 1 <= self.accepted_tokens <= self.drafted_tokens + 1:
            raise DeploymentError(
                f"a step that drafts {self.drafted_tokens} tokens yields 1 to {self.drafted_tokens + 1}, "
                f"not {self.accepted_tokens:g}"
            )

    @property
    def acceptance_given(self) -> bool:
        """Return whether the user stated the accepted tokens."""
        return self.expected_tokens is not None

    @property
    def as_expected(self) -> "Speculation":
        """Return the drafts with the acceptance of measured runs."""
        if self.expected_tokens is None:
            return self
        return replace(self, accepted_tokens=self.expected_tokens, expected_tokens=None)

    @property
    def label(self) -> str:
        """Return the draft method and the drafted tokens, as measured runs state them."""
        return f"mtp{self.drafted_tokens}" if self.own_layers else ""

    def widened(self, spread: Logs) -> Logs:
        """Return the spread of a time without drafts, widened by the uncertainty of the gain from drafts.

        The two uncertainties are treated as independent.
        """
        low, high = (float(np.hypot(plain, more)) for plain, more in zip(spread, self.spread, strict=True))
        return (min(spread[0], -low), max(spread[1], high)) if any(self.spread) else spread

    def tier_on(self, stack: Stack) -> Tier:
        """Return the lower of two tiers: the tier of the stack without drafts, and the tier of the drafts."""
        return "transferred" if "transferred" in {stack.tier, self.tier} else "calibrated"

    def roofline(self, work: ReplicaWork, loop: LoopLoad) -> Array:
        """Return the work of an average step, divided by the tokens that the step yields per request."""
        step = drafting_step if self.own_layers else _verifying_step
        return np.asarray(step(work, loop, self.accepted_tokens)[0] / self.accepted_tokens)


def _verifying_step(work: ReplicaWork, loop: LoopLoad, accepted_tokens: float) -> Array:
    return work.roofline(loop.average(accepted_tokens))
