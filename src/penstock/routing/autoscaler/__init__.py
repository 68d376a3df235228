"""Decides which replicas should be up: sustained rate per replica, and the cheapest set for the expected load."""
