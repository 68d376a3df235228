"""Predicts whether a model fits in memory and how fast it runs.

All functions are pure. The arguments of every function describe a model, an accelerator and an engine.
"""

from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.memory.minimum_change import minimum_devices

__all__ = ["MemoryFit", "fit", "minimum_devices"]
