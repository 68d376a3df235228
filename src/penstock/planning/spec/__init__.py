"""Defines a plan as values, its file format, its default assumptions, its prices and its traces."""
