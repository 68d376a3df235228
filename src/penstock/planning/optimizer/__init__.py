"""Which fleet is cheapest? The problem, the integer program that solves it, and the bill."""
