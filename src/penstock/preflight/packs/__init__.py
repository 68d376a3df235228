"""What one release of an engine accepts, read from its source code without importing it, and kept as a data pack."""
