"""Published routing formulas of other projects, and every policy by name."""
