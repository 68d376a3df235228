"""Judges published figures: is this number possible, and is it near what was published or measured?"""
