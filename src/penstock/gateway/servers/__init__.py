"""Servers that answer Envoy over ext_authz or ext_proc, and the picker process that runs them."""
