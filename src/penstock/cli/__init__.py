"""Implements the `penstock` command.

It parses arguments, calls one library function, and renders the result with `report`.
"""
