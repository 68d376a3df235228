"""How is a preflight shown?"""
