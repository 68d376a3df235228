"""Plans many models on shared devices: `penstock.plan_shared`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from penstock.api.answer import ApiAnswer, Row
from penstock.api.compile_notice import compile_first
from penstock.api.plan import AskedPlan, read_plan, shared_sources
from penstock.api.progress import LOG, ProgressListener
from penstock.planning.shared_placement.shared_plan import ModelBill, SharedChoice, SharedPlan
from penstock.planning.shared_placement.shared_plan import plan_shared as find_shared_devices
from penstock.planning.spec.plan_types import Plan
from penstock.report.plan.shared import SharedPlanDocument, render_shared_plan


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanSharedAnswer(ApiAnswer):
    """The fewest shared devices of each accelerator on which every model keeps its SLO."""

    document_type = SharedPlanDocument
    result: SharedPlan

    @property
    def good(self) -> bool:
        """Return whether an accelerator serves every workload on shared devices."""
        return any(not choice.too_large for choice in self.result.choices)

    def rows(self) -> list[Row]:
        """Return one row per accelerator and model."""
        return [_row(choice, bill) for choice in self.result.choices for bill in choice.bills]

    def render(self, columns: int) -> RenderableType:
        """Return what `plan --share` prints."""
        return render_shared_plan(self.result, columns)

    def _summary(self) -> tuple[str, Sequence[str]]:
        pieces = [f"{choice.devices} {choice.accelerator}" for choice in self.result.choices]
        return self.result.name, pieces or ["no shared devices"]


def plan_shared(file: AskedPlan, *, watch: ProgressListener = LOG) -> PlanSharedAnswer:
    """Plan shared devices, as `penstock plan --share` does: `plan_shared("plan.yaml")`."""
    asked = file if isinstance(file, Plan) else read_plan(Path(file))
    compile_first(watch)
    return PlanSharedAnswer(result=find_shared_devices(asked, shared_sources(asked)))


def _row(choice: SharedChoice, bill: ModelBill) -> Row:
    return {
        "accelerator": choice.accelerator,
        "devices": choice.devices,
        "spare_devices": choice.spare_devices,
        "workload": bill.workload,
        "device": bill.device,
        "kept_awake": bill.kept_awake,
        "memory_bytes": bill.memory_bytes,
        "attained_fraction": bill.attained_fraction,
        "cold_starts": bill.cold_starts,
        "share_fraction": bill.share_fraction,
        "usd": bill.usd,
    }
