"""How does a fleet behave under load? A discrete-event simulation of continuous batching that skips equal steps."""
