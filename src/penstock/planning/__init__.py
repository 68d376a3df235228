"""Which fleet should be bought? The plan file, what fits, the cheapest mix, its cost and what would change it."""
