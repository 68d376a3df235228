"""Colours of vendors and of mixed fleets, the same in every chart and map."""

from typing import Final

LABEL_COLOURS: Final = {"amd": "#c8401f", "nvidia": "#4c8c2b", "mix": "#5a5fc7"}
