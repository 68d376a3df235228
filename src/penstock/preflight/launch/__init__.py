"""With which command? Flags, variables, image and recipe."""
