"""How do requests reach the right silicon? Envoy carries them; pickers say where; a scraper watches the endpoints."""
