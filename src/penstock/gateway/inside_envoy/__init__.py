"""The routing policy inside Envoy: a filter in C, and the tables that Python writes for it."""
