"""Parses arguments of the API functions and commands, which may be text or objects of the library."""
