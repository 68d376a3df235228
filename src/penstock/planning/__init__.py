"""Which fleet should be bought? The plan file, feasible deployments, the cheapest mix, its cost and what would change it."""
