"""Which endpoint is named for a request? One decision, and what it is made from."""
