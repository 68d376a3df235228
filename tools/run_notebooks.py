"""Runs the notebooks of examples/ and stores what their cells show. `make notebooks`.

GitHub shows a notebook as it is stored, so a notebook without outputs is bare code there. A test runs the cells again.
"""

import ast
import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
NOTEBOOKS: Final = tuple(sorted((REPOSITORY / "examples" / "notebooks").glob("*.ipynb")))


def run_cell(source: str, names: dict[str, Any]) -> object:
    """Run a cell as a notebook does, and return the value of its last line."""
    body = ast.parse(source).body
    last = body[-1]
    shown = last if isinstance(last, ast.Expr) else None
    before = ast.Module(body=body if shown is None else body[:-1], type_ignores=[])
    exec(compile(before, "cell", "exec"), names)  # noqa: S102 - our own notebook
    return None if shown is None else eval(compile(ast.Expression(shown.value), "cell", "eval"), names)  # noqa: S307


def outputs_of(value: object, count: int) -> list[dict[str, Any]]:
    """Return the outputs that a notebook stores for the value of a cell."""
    if value is None:
        return []
    data = {"text/plain": _lines(repr(value))}
    markup = getattr(value, "_repr_html_", None)
    if markup is not None:
        data["text/html"] = _lines(markup())
    return [{"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"}]


def shown_text(output: dict[str, Any]) -> str:
    """Return the text that a reader sees of an output."""
    data = output["data"]
    if "text/html" not in data:
        return "".join(data["text/plain"])
    reader = _Text()
    reader.feed("".join(data["text/html"]))
    return "".join(reader.pieces)


class _Text(HTMLParser):
    """Collects the text of markup."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run(path: Path) -> dict[str, Any]:
    """Run the cells of a notebook in order, and return the notebook with their outputs."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        cell["execution_count"] = count
        cell["outputs"] = outputs_of(run_cell("".join(cell["source"]), names), count)
    return notebook


def main() -> int:
    """Run every notebook and store it."""
    for path in NOTEBOOKS:
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
