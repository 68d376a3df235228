"""How alike are runs, and what do the measured ones say about one that was not?"""
