"""Preflight rules: conditions, rules and findings."""
