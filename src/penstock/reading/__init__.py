"""Reads files strictly. Each error is one line, which names the problem, its place in the file and the correction."""
