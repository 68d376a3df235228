"""Corrects predictions by the user's own runs: each run is simulated as it was recorded and compared with its file."""
