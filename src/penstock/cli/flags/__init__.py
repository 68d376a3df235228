"""Flags of the command line."""
