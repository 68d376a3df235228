"""Predicts the speed of a deployment from the serving stack that applies to it."""
