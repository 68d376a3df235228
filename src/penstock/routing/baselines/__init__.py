"""How do others route? Their published formulas, and every policy by its name."""
