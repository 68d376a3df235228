"""One module per command: parse the flags, call the library once, show the answer."""
