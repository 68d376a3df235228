"""What does the shipped evidence say? Joins the catalog's measurements with models and the performance model."""
