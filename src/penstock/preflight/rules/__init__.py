"""Preflight rules, their conditions, and the findings of rules that apply."""
