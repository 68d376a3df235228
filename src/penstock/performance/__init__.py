"""Does it fit, and how fast is it? Pure functions of a model, an accelerator and an engine."""

from penstock.performance.deployment import Deployment, Parallelism
from penstock.performance.engine import Engine, engine_defaults
from penstock.performance.memory_fit import MemoryFit, fit
from penstock.performance.minimum import minimum_devices

__all__ = ["Deployment", "Engine", "MemoryFit", "Parallelism", "engine_defaults", "fit", "minimum_devices"]
