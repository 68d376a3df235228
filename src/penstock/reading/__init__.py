"""Reads files strictly. An error names the problem, its place in the file and the correction in one line."""
