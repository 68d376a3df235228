"""The commands, a file each: parse, one call of the library, show."""
