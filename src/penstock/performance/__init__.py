"""Does it fit, and how fast is it? Pure functions of a model, an accelerator and an engine."""

from penstock.performance.memory.budget import MemoryFit, fit
from penstock.performance.memory.minimum import minimum_devices

__all__ = ["MemoryFit", "fit", "minimum_devices"]
