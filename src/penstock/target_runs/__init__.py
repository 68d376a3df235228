"""Measures servers with an existing load tool: with the same requests for all, interleaved and repeated."""
