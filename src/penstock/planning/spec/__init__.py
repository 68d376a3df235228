"""Defines the types of a plan, the format of a plan file, default assumptions, and inputs from prices and traces."""
