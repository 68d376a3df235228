"""Chooses endpoints for each request, and maintains the state of the fleet that these choices need."""
