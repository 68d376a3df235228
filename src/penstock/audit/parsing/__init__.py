"""How are claims written? As a file, as the sheet of an answer to a tender, as one sentence."""
