"""Checks of claims. Each kind of statement has one pure function."""
