"""Corrects predictions by the user's own runs: `penstock calibrate`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.arguments.choices import counted_targets, model_choice
from penstock.api.arguments.deployment_argument import RequestedDeployment
from penstock.api.compile_notice import compile_first
from penstock.api.next_run_loads import proposed_run
from penstock.api.observed_runs import is_gateway, observed_runs
from penstock.api.options.calibrate_options import CalibrateOptions
from penstock.api.options.option_fields import takes
from penstock.api.results import load_runs
from penstock.catalog import accelerator_ids, load_accelerator
from penstock.errors import PenstockError, UsageError
from penstock.fleet.deployment import Deployment
from penstock.load_tools.load_run import LoadRun
from penstock.load_tools.usable_runs import refusals
from penstock.own_runs.calibration_file import CalibratedFactor, CalibratedTimes, calibration_of, write_calibration
from penstock.own_runs.doubtful_runs import implausible_runs, stated_otherwise, worsened_times
from penstock.own_runs.fit_correction import FittedCorrection, Replay, fit_correction
from penstock.own_runs.next_run import ProposedRun
from penstock.own_runs.replay_run import SimulatedRun, replay_run
from penstock.performance.calibration.own_correction import fingerprint_of
from penstock.performance.prediction.serving_stack import independent_rank
from penstock.performance.similarity.cases import shape_of
from penstock.performance.step.step_work import ReplicaWork
from penstock.report.calibrate import CalibrateDocument, render_calibration
from penstock.simulation.placement import Placement, place

_ENGINES: Final = ("vllm", "sglang", "vllm-atom", "sglang-atom", "atom", "trtllm")


@dataclass(frozen=True, kw_only=True, repr=False)
class CalibrateAnswer(ApiAnswer):
    """Correction of one setup's predictions, and the runs that it was found from."""

    document_type = CalibrateDocument
    calibration: CalibratedTimes
    fitted: FittedCorrection
    refused: tuple[str, ...]
    """Runs that were left out, each with the reason."""
    doubts: tuple[str, ...] = ()
    """Reasons to doubt that the runs measured the stated setup."""
    accept_doubtful: bool = False
    next_run: ProposedRun | None = None
    """Run that would narrow the interval most; None if no run would narrow it much."""

    @property
    def steps(self) -> CalibratedFactor:
        """Return the factor on step times over the measured loads, with the P10 and P90 of a further run there."""
        low, high = self.fitted.steps.spread(self.fitted.steps.loads)
        return CalibratedFactor(factor=exp(self.fitted.steps.level), p10=exp(low), p90=exp(high))

    @property
    def usable(self) -> bool:
        """Return whether the correction may be used: the times of its runs are plausible, or the user accepts them."""
        return self.accept_doubtful or not self.doubts

    @property
    def good(self) -> bool:
        """Return whether every given run was used, and the correction may be used."""
        return not self.refused and self.usable

    def rows(self) -> list[Row]:
        """Return one row per run."""
        return [
            {
                "file": one.run.where,
                "tool": one.run.tool,
                "measured_tpot_s": one.run.tpot.mean_s,
                "tpot_before_s": one.before.tpot_s,
                "tpot_after_s": one.after.tpot_s,
                "measured_ttft_s": one.run.ttft.mean_s,
                "ttft_before_s": one.before.ttft_s,
                "ttft_after_s": one.after.ttft_s,
            }
            for one in self.fitted.runs
        ]

    def render(self, columns: int) -> RenderableType:
        """Return what `calibrate` prints."""
        return render_calibration(
            self.calibration, self.fitted.runs, self.steps, self.next_run, self._warnings(), columns
        )

    def _warnings(self) -> list[str]:
        return [*(f"Refused: {reason}" for reason in self.refused), *(f"Doubtful: {reason}" for reason in self.doubts)]

    def text(self) -> str:
        """Return the calibration file."""
        return write_calibration(self.calibration)

    def _summary(self) -> tuple[str, Sequence[str]]:
        return self.calibration.setup.model, [f"steps x{self.steps.factor:.3f}"]


@takes(CalibrateOptions)
def calibrate(options: CalibrateOptions) -> CalibrateAnswer:
    """Correct predictions by own runs, as `penstock calibrate` does.

    `calibrate(["c16.json"], "h100:2", model="llama-3.1-70b", engine="vllm", precision="fp8", kv="fp8")`
    """
    runs, refused = _usable(options)
    if options.engine not in _ENGINES:
        raise UsageError(f"--engine: '{options.engine}' is not an engine; write one of {', '.join(_ENGINES)}")
    targets = counted_targets(options.on)
    if len(targets) > 1:
        raise UsageError("--on: runs are of one setup; name one accelerator, such as h100:2")
    placing = RequestedDeployment(options.deployment(_model(options, runs)))
    tokens = tuple(max(1, round(median(lengths))) for lengths in zip(*map(_lengths, runs), strict=True))
    prediction = placing.predict(*targets[0], (tokens[0], tokens[1], 64))
    limit = placing.predict(*targets[0], (tokens[0], tokens[1], 1), roofline=True)
    runs, refused = _possible(runs, refused, limit.tpot_s.value)
    compile_first(options.watch)
    placement = place(
        prediction.deployment,
        prediction.measured_engine,
        placing.efficiencies,
        typical_lengths=(tokens[0], tokens[1]),
        prefix_caching=options.shared_prefixes,
    )
    total = len(runs)
    options.watch.progress(f"simulating {total} runs", 0, 0)
    fitted = fit_correction(
        runs,
        partial(_replay_at, placement),
        prior=placement.stack.spread,
        first_prior=placement.stack.first_spread,
        ranks=independent_rank(ReplicaWork(prediction.deployment))[1],
    )
    calibration = calibration_of(
        fitted,
        fingerprint_of(prediction.deployment, prediction.measured_engine),
        model=_model(options, runs),
        engine_version=options.engine_version or runs[0].engine_version or "not stated",
    )
    doubts = (
        *implausible_runs(fitted.runs, placement.stack.spread, placement.stack.first_spread),
        *worsened_times(fitted.runs),
        *_other_models(runs, options.model),
        *_other_setups(runs, options, prediction.deployment),
    )
    return CalibrateAnswer(
        calibration=calibration,
        fitted=fitted,
        refused=refused,
        doubts=doubts,
        accept_doubtful=options.accept_doubtful,
        next_run=proposed_run(fitted, placement, options.plan),
    )


def _replay_at(placement: Placement, prompt_log: float) -> Replay:
    """Return the simulation of runs on an engine with slower or faster prompts."""
    return partial(_replay, placement.with_slower_prompts(prompt_log))


def _replay(placement: Placement, run: LoadRun, log_factor: float) -> SimulatedRun:
    return replay_run(run, placement, log_factor)


def _usable(options: CalibrateOptions) -> tuple[list[LoadRun], tuple[str, ...]]:
    """Read all runs, and separate those that were disturbed."""
    found: list[LoadRun] = []
    for source in options.files:
        if is_gateway(str(source)):
            found += observed_runs(str(source), options.pool, options.seconds, options.watch)
        else:
            found += load_runs(Path(source))
    judged = [
        (
            run,
            (*refusals(run, cache_is_stated=options.shared_prefixes), *_drafts(run), *_repetition(run, found[:number])),
        )
        for number, run in enumerate(found)
    ]
    refused = tuple(f"{run.where}. {reasons[0]}" for run, reasons in judged if reasons)
    usable = [run for run, reasons in judged if not reasons]
    if not usable:
        raise UsageError(f"no run can be used: {refused[0] if refused else 'no file was given'}")
    return usable, refused


def _possible(
    runs: Sequence[LoadRun], refused: tuple[str, ...], limit_s: float
) -> tuple[list[LoadRun], tuple[str, ...]]:
    """Move runs that are faster than the hardware limit of one user to the refused ones."""
    faster = [run for run in runs if run.tpot.mean_s < limit_s]
    reasons = [
        f"{run.where}. TPOT of {run.tpot.mean_s * 1e3:.3g} ms is below the hardware limit of {limit_s * 1e3:.3g} ms; "
        "check the setup, the unit and drafting."
        for run in faster
    ]
    if len(faster) == len(runs):
        raise UsageError(f"no run can be used: {reasons[0]}")
    return [run for run in runs if run not in faster], (*refused, *reasons)


def _drafts(run: LoadRun) -> Iterator[str]:
    """Yield a reason if the engine drafted. A calibration is about setups without drafting."""
    if (run.accepted_tokens or 1.0) > 1.0:
        yield (
            f"The engine drafted and accepted {run.accepted_tokens:.3g} tokens per step; a calibration is about a "
            "setup without drafting, so turn it off and repeat the run."
        )


def _repetition(run: LoadRun, before: Sequence[LoadRun]) -> Iterator[str]:
    """Yield a reason if an earlier file has the same run. A run that is given twice is one measurement."""
    same = next((one.where for one in before if replace(one, where=run.where) == run), None)
    if same is not None:
        yield f"It is the same run as {same}."


def _other_models(runs: Sequence[LoadRun], model: str | None) -> Iterator[str]:
    """Yield the models that files name and that are another model of the catalog than the stated one."""
    for name in {run.model for run in runs if run.model is not None and model is not None}:
        try:
            stated, named = model_choice(model or "", None), model_choice(name, None)
        except PenstockError:
            continue  # the name by which a server serves its model is free
        if shape_of(stated) != shape_of(named):
            yield f"A file names {name}, not {model}."


def _other_setups(runs: Sequence[LoadRun], options: CalibrateOptions, deployment: Deployment) -> Iterator[str]:
    """Yield the facts that files state and that differ from the stated setup."""
    known = [replace(run, accelerator=_catalog_id(run.accelerator)) for run in runs]
    accelerator = deployment.accelerator.id
    return stated_otherwise(
        known,
        options.engine,
        options.engine_version,
        accelerator if accelerator in accelerator_ids() else None,
        deployment.parallelism.devices,
    )


def _catalog_id(name: str | None) -> str | None:
    """Return the identifier of an accelerator that a file names; None if the catalog does not have it."""
    try:
        return None if name is None else load_accelerator(name).id
    except PenstockError:
        return None


def _model(options: CalibrateOptions, runs: Sequence[LoadRun]) -> str:
    """Return the model of the runs: the stated one, or the one that all files name."""
    if options.model is not None:
        return options.model
    names = {run.model for run in runs if run.model is not None}
    if len(names) != 1:
        named = ", ".join(sorted(names)) or "none"
        raise UsageError(f"the files name {named} as the model; add --model with a name from `catalog models`")
    return names.pop()


def _lengths(run: LoadRun) -> tuple[float, float]:
    return run.input_length.mean, run.output_length.mean
