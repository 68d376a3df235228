"""Measures how certain the answer is and finds the inputs that would change it."""
