"""What is claimed? One frozen class per kind of statement, and who said it."""
