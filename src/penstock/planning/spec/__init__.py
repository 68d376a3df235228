"""What was asked, and what is assumed where nothing was? A plan as values, its file, its prices and its traces."""
