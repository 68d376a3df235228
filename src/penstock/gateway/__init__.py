"""Routes requests to endpoints. Envoy forwards requests, pickers choose endpoints, and a scraper reads metrics."""
