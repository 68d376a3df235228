"""How is a simulation shown?"""
