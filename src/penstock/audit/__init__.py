"""Checks whether published claims are possible, and whether they agree with the inputs that they state."""
