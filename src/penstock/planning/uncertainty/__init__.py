"""How sure is the answer, and what would change it?"""
