"""Builds the shared library. Only this package imports numba and llvmlite, and it does so only to build."""
