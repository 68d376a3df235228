"""Reads safetensors files: headers first, then tensors one at a time."""
