"""Defines the flags of the command line."""
