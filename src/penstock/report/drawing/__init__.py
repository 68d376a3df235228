"""How is anything drawn? Bars, lines and charts, and values as JSON."""
