"""Places many models on shared devices, as an alternative to devices of their own."""
