"""Builds the shared library. Except to load object files, only this package imports numba and llvmlite."""
