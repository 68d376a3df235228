"""Reads an accelerator that the catalog does not have, from the user's own file."""

from pathlib import Path
from typing import Final

from penstock.catalog._catalog_files import accelerator_ids, load_accelerator, parse_accelerator
from penstock.catalog.accelerator import Accelerator
from penstock.errors import CatalogError, UsageError
from penstock.reading.text import read_text
from penstock.reading.toml import parse_toml

SUFFIX: Final = ".toml"
_EXAMPLE: Final = "docs/guides/measure.md has an example"


def find_accelerator(name: str) -> Accelerator:
    """Read an accelerator by its name in the catalog, or from a file whose name ends in `.toml`."""
    return read_accelerator(Path(name)) if name.lower().endswith(SUFFIX) else load_accelerator(name)


def read_accelerator(path: Path) -> Accelerator:
    """Read an accelerator from a file in the format of the catalog.

    Its id must not be that of an accelerator in the catalog, because measurements and prices are found by the id.
    """
    try:
        found = parse_accelerator(parse_toml(read_text(path, _EXAMPLE), path.name), path.name)
    except CatalogError as error:
        raise UsageError(f"{error}; {_EXAMPLE}") from None
    if found.id in accelerator_ids():
        raise UsageError(f"{path.name}: id: '{found.id}' is in the catalog; write another id")
    return found
