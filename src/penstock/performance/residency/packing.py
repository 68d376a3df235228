"""Packs models on equal devices by memory: which models fit together on one device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.fleet.deployment import Deployment
from penstock.performance.residency.co_residence import SharedMemory, share_memory


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Models in groups, each of which shares one device or one tensor-parallel group."""

    groups: tuple[SharedMemory, ...]
    too_large: tuple[str, ...]
    """Names of the models that do not fit on a device of their own."""

    @property
    def together(self) -> bool:
        """Return whether all models fit on one device."""
        return len(self.groups) == 1 and not self.too_large


def pack(deployments: Sequence[Deployment], context_tokens: Sequence[int]) -> Packing:
    """Pack models on few devices, and spread them so that each device keeps room for KV caches.

    The number of devices comes from packing the largest model first, each on the first device with room. The models are
    then spread over this number of devices, each on the device with the most room.
    """
    sharing = partial(_share, deployments, context_tokens)
    alone = {index: sharing([index]) for index in range(len(deployments))}
    fitting = sorted((index for index in alone if alone[index].fits), key=lambda index: -_own_bytes(alone[index]))
    first_fit = _fill(fitting, sharing, [])
    spread = _fill(fitting, sharing, [[] for _ in first_fit], roomiest=True)
    groups = spread if len(spread) == len(first_fit) else first_fit
    too_large = tuple(deployments[index].model.name for index in alone if not alone[index].fits)
    return Packing(groups=tuple(sharing(members) for members in groups), too_large=too_large)


def _fill(
    models: Sequence[int],
    sharing: Callable[[Sequence[int]], SharedMemory],
    groups: list[list[int]],
    *,
    roomiest: bool = False,
) -> list[list[int]]:
    """Put each model in the first group that can take it, or in the group that then has the most room.

    A model that no group can take opens a group.
    """
    for index in models:
        tried = [(sharing([*members, index]), place) for place, members in enumerate(groups)]
        able = [(-shared.kv_bytes if roomiest else 0, place) for shared, place in tried if shared.fits]
        if able:
            groups[min(able)[1]].append(index)
        else:
            groups.append([index])
    return groups


def _own_bytes(shared: SharedMemory) -> int:
    return sum(share.own_bytes for share in shared.shares)


def _share(deployments: Sequence[Deployment], context_tokens: Sequence[int], members: Sequence[int]) -> SharedMemory:
    members = sorted(members)
    return share_memory([deployments[one] for one in members], [context_tokens[one] for one in members])
