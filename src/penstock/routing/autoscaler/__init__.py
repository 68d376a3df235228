"""Which replicas should be up? What one takes within the promise, and the cheapest set for the load to come."""
