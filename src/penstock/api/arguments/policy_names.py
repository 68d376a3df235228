"""Parses policy names from a comma-separated list."""

from penstock.errors import UsageError
from penstock.routing.baselines.all_policies import RoutingPolicy, policy_of


def policies_choice(text: str) -> list[RoutingPolicy]:
    """Return the named policies. Raise an error if a policy is named twice."""
    if not isinstance(text, str):
        raise UsageError("name policies in one text with commas, such as `penstock,round-robin`")
    names = text.split(",")
    if not all(name.strip() for name in names):
        raise UsageError(f"'{text}' has a comma without a policy; use `penstock,round-robin`, for example")
    found = [policy_of(name) for name in names]
    if len({one.name for one in found}) != len(found):
        raise UsageError(f"'{text}' names a policy twice; name each policy once")
    return found
