"""Predicts unmeasured runs from measured ones by how similar they are."""
