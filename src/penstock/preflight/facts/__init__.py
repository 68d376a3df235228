"""Facts about the checkpoint, the launch and the host, in the form that rules use."""
