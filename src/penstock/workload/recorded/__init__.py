"""How is a recording read? Traces in any common format, in blocks, through DuckDB."""
