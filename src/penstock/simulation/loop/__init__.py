"""The compiled simulation loop: arrivals, the scheduler, KV blocks, and measurements."""
