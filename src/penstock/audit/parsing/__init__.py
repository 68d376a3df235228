"""Parses claims from a YAML file, a tender sheet or a sentence."""
