"""How is a file read? Strictly: one line says what is wrong, where, and what to write instead."""
