"""Checks of claims: one pure function per kind of statement."""
