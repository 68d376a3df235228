"""Which policies are meant? Names as they are typed, comma separated."""

from penstock.errors import UsageError
from penstock.routing.compared.policies import RoutingPolicy, policy_of


def policies_choice(text: str) -> list[RoutingPolicy]:
    """Find them all; none twice."""
    found = [policy_of(name) for name in text.split(",") if name.strip()]
    if not found or len({one.name for one in found}) != len(found):
        raise UsageError(f"'{text}' names a policy twice or none; write penstock,round-robin")
    return found
