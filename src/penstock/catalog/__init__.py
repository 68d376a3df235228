"""Holds facts about accelerators, prices and models, each with its source.

Each file of the catalog is read only when it is needed.
"""

from penstock.catalog._catalog_files import (
    accelerator_ids,
    find_model,
    load_accelerator,
    load_accelerators,
    load_acceptance_lengths,
    load_disaggregation,
    load_drafted_evidence,
    load_drafts,
    load_efficiencies,
    load_evidence,
    load_fleet_points,
    load_held_out,
    load_measurements,
    load_mlperf_results,
    load_models,
    load_power,
    load_prices,
    load_seller_levels,
    measurement_sources,
    model_ids,
    priced_ids,
)

__all__ = [
    "accelerator_ids",
    "find_model",
    "load_accelerator",
    "load_accelerators",
    "load_acceptance_lengths",
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
]
