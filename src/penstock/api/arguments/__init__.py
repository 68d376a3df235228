"""How is what people type read? Words and typed objects alike, for the command line and for Python."""
