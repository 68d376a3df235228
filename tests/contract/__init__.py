"""Tests through the public doors of the installed wheel. Only `policy_doors.py` imports Penstock."""
