"""What can a router that knows its silicon gain? The experiments of docs/reports/routing-results.md."""
