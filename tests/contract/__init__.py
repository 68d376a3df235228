"""Tests through the public doors of the installed wheel. Nothing in this folder imports Penstock."""
