"""Writes what Penstock knows about a fleet in the formats of other routers and autoscalers."""
