"""Published routing formulas of other projects, and a list of all routing policies by name."""
