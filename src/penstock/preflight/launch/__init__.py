"""Builds and checks launch commands, with their flags, environment variables, image and recipe."""
