"""Writes and parses metric labels in Prometheus's text format, including escapes."""

import re
from collections.abc import Mapping
from typing import Final

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')
LABELS: Final = r'(?:\w+="(?:[^"\\\n]|\\.)*",?)*'
"""Regular expression for the text between the braces."""
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_MEANT: Final = {escape: character for character, escape in _ESCAPED.items()}
_ESCAPE: Final = re.compile(r'\\[\\"n]')


def write_labels(labels: Mapping[str, str]) -> str:
    """Return the labels as text for between the braces."""
    table = str.maketrans(_ESCAPED)
    return ",".join(f'{name}="{value.translate(table)}"' for name, value in labels.items())


def read_labels(text: str) -> dict[str, str]:
    """Parse the text that `write_labels` returned."""
    return {name: _ESCAPE.sub(lambda found: _MEANT[found[0]], value) for name, value in _LABEL.findall(text)}
