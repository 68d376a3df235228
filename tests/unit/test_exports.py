"""What each package shows the others, and what importing it costs: changed on purpose or not at all."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import penstock

EXPORTS = {
    "penstock": [
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
    ],
    "penstock.catalog": [
        "accelerator_ids",
        "api_price_of",
        "find_model",
        "find_unread_model",
        "load_accelerator",
        "load_accelerators",
        "load_acceptance_lengths",
        "load_api_prices",
        "load_disaggregation",
        "load_drafted_evidence",
        "load_drafts",
        "load_efficiencies",
        "load_evidence",
        "load_fleet_points",
        "load_held_out",
        "load_measurements",
        "load_mlperf_results",
        "load_models",
        "load_power",
        "load_prices",
        "load_seller_levels",
        "measurement_sources",
        "model_ids",
        "priced_ids",
        "unread_models",
    ],
    "penstock.checkpoint": [
        "Checkpoint",
        "CrossCheck",
        "StoredTensor",
        "cross_check",
        "open_checkpoint",
        "open_config",
        "read_header",
    ],
    "penstock.economics": [
        "Finance",
        "Item",
        "Line",
        "Ownership",
        "Site",
        "StackCosts",
        "Waterfall",
        "ownership_bill",
        "people",
        "waterfall",
    ],
    "penstock.model": [
        "CacheDtype",
        "Experts",
        "LatentAttention",
        "Layer",
        "ModelSpec",
        "Part",
        "RecurrentState",
        "Split",
        "Weight",
        "WeightFormat",
        "cache_dtype",
        "read_config",
        "read_model",
    ],
    "penstock.model.architectures": ["ARCHITECTURES", "Architecture", "Outline", "UNREAD"],
    "penstock.fleet": ["Deployment", "Engine", "Parallelism", "Release", "engine_defaults"],
    "penstock.performance": ["MemoryFit", "fit", "minimum_devices"],
    "penstock.preflight": [
        "Assessment",
        "Facts",
        "Finding",
        "Grounds",
        "Launch",
        "LaunchChoices",
        "LaunchPlan",
        "Preflight",
        "PreflightQuestion",
        "Readiness",
        "Rule",
        "ScannedFacts",
        "Severity",
        "Situation",
        "StoredFacts",
        "Subject",
        "Undetermined",
        "Unknown",
        "assess",
        "check",
        "derive_facts",
        "load_knowledge",
        "load_rules",
        "parse_command",
        "read_scheme",
    ],
    "penstock.workload": [
        "Arrivals",
        "AsRecorded",
        "ClosedLoop",
        "Conversations",
        "CountProgress",
        "Diurnal",
        "Empirical",
        "Fixed",
        "Gamma",
        "LogNormal",
        "LogNormalFit",
        "Overload",
        "Poisson",
        "Prefixes",
        "Records",
        "Requests",
        "Slo",
        "SloClass",
        "SystemPrompts",
        "Trace",
        "TraceSummary",
        "Uniform",
        "Workload",
        "WorkloadSummary",
        "day_curve",
        "describe",
        "describe_trace",
        "draw_as_benchmarks",
        "fit_empirical",
        "fit_log_normal",
        "parse_columns",
        "parse_duration",
        "parse_slo",
        "read_trace",
        "require_whole",
        "usable_rows_sentence",
        "vary_answers",
    ],
}
HEAVY = {
    "altair",
    "click",
    "duckdb",
    "highspy",
    "huggingface_hub",
    "numba",
    "numpy",
    "pydantic",
    "pydantic_core",
    "re2",
    "rich",
    "vl_convert",
    "yaml",
}


PACKAGES = [
    "penstock",
    *(module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock.") if module.ispkg),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_exports_what_is_pinned_and_has_all_of_it(name: str) -> None:
    package = importlib.import_module(name)
    exported = getattr(package, "__all__", [])
    assert sorted(exported) == EXPORTS.get(name, [])
    assert not [export for export in exported if not hasattr(package, export)]


@pytest.mark.parametrize("name", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(name: str) -> None:
    code = f"import sys, {name}; print(*{{module.partition('.')[0] for module in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    requests_are_columns = name.startswith("penstock.workload")
    assert HEAVY & set(loaded) == ({"numpy"} if requests_are_columns else set())
