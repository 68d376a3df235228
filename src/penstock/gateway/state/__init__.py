"""What do the processes of a gateway share? The fleet as it is routed to, and tables in shared memory."""
