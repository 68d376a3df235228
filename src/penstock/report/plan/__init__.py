"""How is a plan shown?"""
