"""What do safetensors files say? Headers first, then tensors one at a time."""
