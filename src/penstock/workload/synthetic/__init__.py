"""How are requests drawn? Arrivals, lengths, shared prompts and turns of a conversation."""
