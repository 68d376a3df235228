"""Checks that preflight prints a launch for a deployment option and that the launch passes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.planning.candidates.option_pools import option_pools
from penstock.planning.candidates.replica_capacity import Option
from penstock.planning.spec.plan_types import WorkloadPlan
from penstock.preflight import Preflight, Subject
from penstock.preflight.pool_check import check_pool, launched_checkpoint
from penstock.preflight.preflight_result import Readiness
from penstock.preflight.rules.knowledge import Knowledge

SubjectOf = Callable[[str], Subject]
"""Function from a model's name to the checkpoint that preflight checks."""
HasRun = Callable[[Option, str], bool]
"""Function from an option and its model's name to whether somebody published a run of it."""
ObstacleOf = Callable[[Option, str], str | None]
"""Function from an option and its model's name to the reason why preflight does not pass its launch, or None."""


@dataclass(frozen=True, kw_only=True)
class NotLaunched:
    """An option that is left out because preflight does not pass its launch, although no candidate dominates it."""

    workload: WorkloadPlan
    option: Option
    why: str


@dataclass(slots=True)
class LaunchCheck:
    """Runs preflight on the launch of deployment options; each launch is checked once."""

    subject_of: SubjectOf
    knowledge: Knowledge
    has_run: HasRun = lambda *_: False
    """A published run shows that an option starts where preflight has no rules that tell."""
    _found: dict[tuple[object, ...], "_Launch"] = field(default_factory=dict)

    def obstacle(self, option: Option, model: str) -> str | None:
        """Return why the launch of an option is not planned; None if preflight passes it."""
        return self._launch(option, model).obstacle

    def is_undetermined(self, option: Option, model: str) -> bool:
        """Return whether preflight prints the launch of an option but has no rules that check it."""
        return self._launch(option, model).undetermined

    def _launch(self, option: Option, model: str) -> "_Launch":
        key = (model, option.id, option.measured_engine)
        if key not in self._found:
            self._found[key] = self._check(option, model)
        return self._found[key]

    def _check(self, option: Option, model: str) -> "_Launch":
        undetermined = False
        for pool in option_pools(option, name="pool", model=model, site="site", replicas=1):
            deployment, subject = option.deployment, self.subject_of(model)
            if launched_checkpoint(pool, subject) is None:
                unpublished = f"the catalog has no {pool.weights} checkpoint of {model}"
                return _Launch(obstacle=f"{unpublished}, and {pool.engine.name} makes none at load")
            answer = check_pool(pool, deployment.accelerator, subject, deployment.model, self.knowledge)
            if not answer.passes:
                return _Launch(obstacle=_reason(answer))
            undetermined |= answer.readiness is Readiness.UNDETERMINED
            if undetermined and not self.has_run(option, model):
                where = f"{pool.weights} weights with {pool.engine.name} on {deployment.accelerator.id}"
                why = f"preflight cannot tell whether {where} start; name the engine to plan it"
                return _Launch(obstacle=why, undetermined=True)
        return _Launch(undetermined=undetermined)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """What preflight says of the launch of an option, which is an obstacle to a plan or not."""

    obstacle: str | None = None
    undetermined: bool = False


def _reason(answer: Preflight) -> str:
    stops = [stop.text for stop in answer.obstacles]
    stops += [finding.rule.message for finding in answer.assessment.findings]
    return f"preflight does not pass {answer.question.engine} {answer.question.version}: {stops[0]}"
