"""Compiled code: marks functions, describes their memory, and finds or builds the shared library that contains them."""
