"""Marks functions to compile, describes their memory layout, and finds or builds the shared library with them."""
