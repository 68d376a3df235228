"""What is known about the case? The checkpoint, the launch and the host as facts that rules ask for."""
