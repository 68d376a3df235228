"""What do endpoints say of themselves? Their metrics pages, read again and again."""
