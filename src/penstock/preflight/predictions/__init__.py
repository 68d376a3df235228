"""Predicts FP8 dialect, kernels, attention backend and AITER kernels, as the engine would choose them."""
