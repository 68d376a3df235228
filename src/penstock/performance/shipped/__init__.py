"""Loads the shipped evidence, and joins the catalog's measurements with models and the performance model."""
