"""Computes which models share a device, what each keeps where, and how long a model takes to wake or load."""
