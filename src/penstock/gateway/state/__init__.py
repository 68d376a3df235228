"""State that the gateway's processes share: the routed fleet, and tables in shared memory."""
