"""Is it so? One pure function per kind of statement."""
