"""How does a fleet answer that nobody owns? OpenAI endpoints whose times are the performance model's."""
