"""Predicts which FP8 dialect, weight kernels, attention backend and AITER kernels an engine uses."""
