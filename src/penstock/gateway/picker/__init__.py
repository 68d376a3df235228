"""Chooses endpoints for each request, and keeps the state that these decisions need."""
