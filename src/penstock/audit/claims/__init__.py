"""Claim types. Each kind of statement has one frozen class, and each claim names its source."""
