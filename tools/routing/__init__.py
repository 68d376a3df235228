"""What can a router that knows its silicon gain? The experiments of tools/results/routing-*.csv."""
