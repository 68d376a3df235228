"""Routes requests to endpoints: Envoy proxies, pickers choose the endpoint, a scraper reads engine metrics."""
