"""How are policies that route to a fleet compared?"""
