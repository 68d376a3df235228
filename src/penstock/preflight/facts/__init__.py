"""Facts about the checkpoint, the launch and the host, as rules use them."""
