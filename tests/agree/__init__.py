"""Asks one question through every public door that answers it, and counts the disagreements: `make agree`."""
