"""Parses arguments, as text or as typed objects, for the command line and for Python."""
