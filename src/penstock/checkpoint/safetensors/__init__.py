"""Reads safetensors files. Headers of safetensors files are read first, then tensors one at a time."""
