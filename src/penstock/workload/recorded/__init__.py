"""Reads recorded traces in common formats, in blocks, through DuckDB."""
