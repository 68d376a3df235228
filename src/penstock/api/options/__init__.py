"""Options of the API functions; each class is also the source of a command's flags, so it imports nothing heavy."""
