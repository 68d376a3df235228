"""How are labels of a metrics page written and read? As Prometheus's text format has them, escapes included."""

import re
from collections.abc import Mapping
from typing import Final

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')
LABELS: Final = r'(?:\w+="(?:[^"\\\n]|\\.)*",?)*'
"""An expression for what stands between the braces."""
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_MEANT: Final = {escape: character for character, escape in _ESCAPED.items()}
_ESCAPE: Final = re.compile(r'\\[\\"n]')


def write_labels(labels: Mapping[str, str]) -> str:
    """Write what stands between the braces."""
    table = str.maketrans(_ESCAPED)
    return ",".join(f'{name}="{value.translate(table)}"' for name, value in labels.items())


def read_labels(text: str) -> dict[str, str]:
    """Read what `write_labels` wrote."""
    return {name: _ESCAPE.sub(lambda found: _MEANT[found[0]], value) for name, value in _LABEL.findall(text)}
