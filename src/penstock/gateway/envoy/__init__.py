"""Builds Envoy's configuration as plain values, and finds the Envoy program."""
