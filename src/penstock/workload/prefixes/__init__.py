"""Which requests begin alike? Shared prompts as a tree, and its pieces as blocks."""
