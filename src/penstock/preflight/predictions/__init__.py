"""What will serve? FP8 dialect, kernels, attention backend and AITER, as the engine would choose them."""
