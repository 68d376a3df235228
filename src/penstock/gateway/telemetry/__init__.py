"""Scrapes the endpoints' metrics pages and publishes the gateway's own."""
