"""Describes a placed replica as an endpoint record, as the routing policy reads it."""

from penstock.fleet.pools import Pool
from penstock.routing.records import Records, new_endpoints
from penstock.simulation.loop.initial_visibility import describe_replica
from penstock.simulation.replica import Replica


def endpoint_record(replica: Replica, pool: Pool) -> Records:
    """Return a replica as an endpoint record for the policy. All ranks behind one address are one endpoint."""
    record = new_endpoints(1)
    describe_replica(record, replica, replica.cost, usd_per_hour=pool.usd_per_hour or 0.0)
    record["saved_usd_per_s"] = record["usd_per_s"] * pool.elastic
    record["max_context_tokens"] = replica.max_tokens
    for limit in ("kv_tokens", "max_running", "step_tokens"):
        record[limit] *= replica.ranks
    return record
