"""Does the fleet keep its promise? Simulated at its peak, and grown where it does not."""
