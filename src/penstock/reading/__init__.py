"""Strict readers of files; an error names the problem, the place and the fix in one line."""
