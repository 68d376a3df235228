"""Reads printed tables in tests, so that a test names the figures it is about and not the whole page."""


def row(text: str, first: str) -> list[str]:
    """Return the words after `first` in the only line that begins with it."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{first} ")]
    return line.strip().removeprefix(first).split()


def words(text: str) -> str:
    """Return a text with every break and run of blanks as one blank."""
    return " ".join(text.split())
