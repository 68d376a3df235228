"""Checks of claims. Each kind of statement is checked by one pure function."""
