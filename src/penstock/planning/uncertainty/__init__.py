"""Measures how certain a plan's answer is, and finds the inputs that would change the answer."""
