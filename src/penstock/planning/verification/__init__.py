"""Verifies fleets by simulation at their peak, and enlarges those that miss their SLO."""
