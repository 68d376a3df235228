"""Claim types: one frozen class per kind of statement, and its source."""
