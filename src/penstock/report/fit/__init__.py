"""How is a memory fit shown?"""
