"""Is a published claim possible, and does it follow from its own inputs?"""
