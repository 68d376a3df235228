"""Reads safetensors files. Headers are read first, then tensors one at a time."""
