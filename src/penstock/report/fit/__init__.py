"""Renders the answer of `fit`: whether a model fits in memory."""
