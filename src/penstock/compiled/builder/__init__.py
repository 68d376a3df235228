"""Builds the shared library. Only this package imports numba and llvmlite, and only to build."""
