"""Are the FP8 bytes what they should be? Dialects, scales and every defect that shows in them."""
