"""Launch commands: flags, variables, image and recipe."""
