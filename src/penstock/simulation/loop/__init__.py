"""What happens next? The compiled loop: arrivals, the scheduler, KV blocks, and what is observed."""
