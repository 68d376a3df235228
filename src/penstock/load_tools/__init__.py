"""Result files of load tools, read into one set of definitions.

Load tools define the same words differently. Here TPOT is the time from the first token to the last, divided by the
tokens after the first; times are in seconds; token counts say who counted them.
"""
