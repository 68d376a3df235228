"""What is known to go wrong? Conditions, rules and what they find."""
