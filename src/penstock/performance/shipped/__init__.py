"""Loads the shipped evidence: joins the catalog's measurements with models and the performance model."""
