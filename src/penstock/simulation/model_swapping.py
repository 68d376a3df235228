"""Defines devices that several models share, and how a model gets memory there."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from penstock.errors import DeploymentError
from penstock.fleet.pools import Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedModel:
    """One replica of a pool on a shared device."""

    pool: str
    """Name of the pool whose replica runs here."""
    awake_bytes: int
    """Memory while the model serves: weights, engine and KV cache."""
    asleep_bytes: int = 0
    """Memory that stays taken while the model sleeps."""
    wake_s: float = 0.0
    """Seconds to get the weights back, from host memory or from disk."""
    sleep_s: float = 0.0
    """Seconds until the memory of the model is free."""
    awake: bool = False
    """Whether the model is awake at the start."""
    kept_awake: bool = False
    """Whether the model is never put to sleep."""
    patience_s: float = inf
    """Time to first token that a request of the model may take. `least-harm` uses it."""

    def __post_init__(self) -> None:
        if not 0 <= self.asleep_bytes <= self.awake_bytes or min(self.wake_s, self.sleep_s) < 0 or self.patience_s <= 0:
            raise DeploymentError(
                f"model of pool '{self.pool}': its memory asleep must be between 0 and its memory awake, its times 0 s "
                "or longer, and its patience above 0 s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappingDevice:
    """A device, or a tensor-parallel group, whose models take turns.

    Each step advances the batch of one model. Models with work step in turn.
    """

    name: str
    capacity_bytes: int
    models: tuple[SwappedModel, ...]
    eviction: Eviction = "least-recently-used"

    def __post_init__(self) -> None:
        asleep = sum(one.asleep_bytes for one in self.models)
        fixed = asleep + sum(one.awake_bytes - one.asleep_bytes for one in self.models if one.kept_awake)
        for one in self.models:
            needed = fixed + (0 if one.kept_awake else one.awake_bytes - one.asleep_bytes)
            if needed > self.capacity_bytes:
                raise DeploymentError(
                    f"device '{self.name}': the model of pool '{one.pool}' never fits next to the models that are kept "
                    f"awake and the engines that sleep; it lacks {(needed - self.capacity_bytes) / 2**30:,.1f} GiB"
                )
        if self.awake_bytes > self.capacity_bytes:
            raise DeploymentError(f"device '{self.name}': the models that are awake at the start exceed its memory")

    @property
    def awake_bytes(self) -> int:
        """Memory taken at the start."""
        return sum(one.awake_bytes if one.awake or one.kept_awake else one.asleep_bytes for one in self.models)


def assign_replicas(devices: Sequence[SwappingDevice], replicas_of: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """Return, for each replica of the pools in order, its device and its place on it, or -1 and -1.

    The replicas of a pool take the devices that name the pool, in order. `replicas_of` has the name of each pool and
    its number of replicas.
    """
    known = dict(replicas_of)
    named: dict[str, list[tuple[int, int]]] = {name: [] for name in known}
    for index, device in enumerate(devices):
        for place, one in enumerate(device.models):
            if one.pool not in named:
                raise DeploymentError(f"device '{device.name}' names the pool '{one.pool}', which does not exist")
            named[one.pool].append((index, place))
    found: list[tuple[int, int]] = []
    for name, replicas in replicas_of:
        if named[name] and len(named[name]) != replicas:
            raise DeploymentError(f"pool '{name}' has {replicas} replicas, but {len(named[name])} places on devices")
        found += named[name] or [(-1, -1)] * replicas
    return found
