"""Evidence for speed claims: weight formats, physical limits, published rows and the performance model."""
