"""Predicts the power of a device from the utilisation of its memory and arithmetic, fitted to measured energy."""
