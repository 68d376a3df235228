"""Provides drawing helpers for bars, sparklines, tables, chart files and JSON values."""
