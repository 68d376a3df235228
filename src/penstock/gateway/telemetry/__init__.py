"""Scrapes the metrics pages of the endpoints, and publishes the metrics page of the gateway."""
