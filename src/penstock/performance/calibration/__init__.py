"""What do measurements say? Rows, the slowdowns fitted to them, and how wrong those are where they did not look."""
