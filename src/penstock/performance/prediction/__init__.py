"""How fast will it be? The stack that applies to a deployment, and what it predicts."""
