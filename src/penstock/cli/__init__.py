"""Implements the `penstock` command.

Each command parses its arguments, calls one library function, and renders the result with `report`.
"""
