"""Provides the Python API, with one module per function.

`import penstock` exports the functions and their answer types.
"""
