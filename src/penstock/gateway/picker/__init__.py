"""Chooses endpoints for each request, and maintains the fleet state that the choice depends on."""
