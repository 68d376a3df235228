"""The words of workloads, where the commands that do not call the API yet look for them."""

from penstock.api.asked.workload import mapping_note

__all__ = ["mapping_note"]
