"""Servers that answer Envoy over ext_proc, and the picker process that runs them."""
