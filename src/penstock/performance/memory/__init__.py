"""Does it fit? What a device holds, what else sits there, and what is left."""
