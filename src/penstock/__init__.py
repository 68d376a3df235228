"""Penstock finds the AMD or NVIDIA GPUs that serve an LLM, and predicts speed, cost and whether it starts."""

import sys

__version__ = "0.2.0"
__all__ = [
    "AuditAnswer",
    "CatalogAnswer",
    "FitAnswer",
    "FitTogetherAnswer",
    "GuideAnswer",
    "PlanAnswer",
    "PlanSharedAnswer",
    "PredictAnswer",
    "PredictDisaggregatedAnswer",
    "PreflightAnswer",
    "SimulateAnswer",
    "SimulateFleetAnswer",
    "SweepAnswer",
    "audit",
    "catalog",
    "fit",
    "fit_together",
    "guide",
    "plan",
    "plan_shared",
    "predict",
    "preflight",
    "simulate",
    "simulate_fleet",
    "sweep",
]

TYPE_CHECKING = False  # `typing` would be imported for its name alone; type checkers know this one as well
if TYPE_CHECKING:
    from penstock.api.audit import AuditAnswer, audit
    from penstock.api.catalog import CatalogAnswer, catalog
    from penstock.api.fit import FitAnswer, fit
    from penstock.api.fit_together import FitTogetherAnswer, fit_together
    from penstock.api.guide import GuideAnswer, guide
    from penstock.api.plan import PlanAnswer, plan
    from penstock.api.plan_shared import PlanSharedAnswer, plan_shared
    from penstock.api.predict import PredictAnswer, PredictDisaggregatedAnswer, predict
    from penstock.api.preflight import PreflightAnswer, preflight
    from penstock.api.simulate import SimulateAnswer, simulate
    from penstock.api.simulate_fleet import SimulateFleetAnswer, simulate_fleet
    from penstock.api.sweep import SweepAnswer, sweep


class _Lazy:
    """Descriptor that imports a name of the API when the name is first used.

    A module's `__getattr__` is not enough, because importing the packages `audit` and `catalog` binds their names in
    this module. `penstock.audit` would then be a function or a package, depending on earlier imports.
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> object:
        from importlib import import_module  # noqa: PLC0415 - importing penstock imports nothing else

        return getattr(import_module(f"penstock.api.{self.module}"), self.name)

    def __set__(self, instance: object, value: object) -> None:
        """Keep the API's function when a package of the same name is imported.

        `from penstock.catalog import ...` still works.
        """


class _FrontDoor(type(sys)):  # type: ignore[misc] # the class of modules, without importing `types`
    """Class of the module `penstock`, with the names of the API as attributes."""

    AuditAnswer = _Lazy("audit")
    CatalogAnswer = _Lazy("catalog")
    FitAnswer = _Lazy("fit")
    FitTogetherAnswer = _Lazy("fit_together")
    GuideAnswer = _Lazy("guide")
    PlanAnswer = _Lazy("plan")
    PlanSharedAnswer = _Lazy("plan_shared")
    PredictAnswer = _Lazy("predict")
    PredictDisaggregatedAnswer = _Lazy("predict")
    PreflightAnswer = _Lazy("preflight")
    SimulateAnswer = _Lazy("simulate")
    SimulateFleetAnswer = _Lazy("simulate_fleet")
    SweepAnswer = _Lazy("sweep")
    audit = _Lazy("audit")
    catalog = _Lazy("catalog")
    fit = _Lazy("fit")
    fit_together = _Lazy("fit_together")
    guide = _Lazy("guide")
    plan = _Lazy("plan")
    plan_shared = _Lazy("plan_shared")
    predict = _Lazy("predict")
    preflight = _Lazy("preflight")
    simulate = _Lazy("simulate")
    simulate_fleet = _Lazy("simulate_fleet")
    sweep = _Lazy("sweep")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _FrontDoor
