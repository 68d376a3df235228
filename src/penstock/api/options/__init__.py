"""Options of the API functions.

Commands make their flags from the same classes, so these classes import no slow modules.
"""
