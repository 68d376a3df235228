"""Charges each request the rented time that it caused, so that a bill by tenant adds up to the rent."""
