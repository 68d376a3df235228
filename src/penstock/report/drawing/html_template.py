"""Renders HTML from the package's Jinja2 templates. Every value is escaped unless it is marked as HTML."""

import re
from functools import cache
from importlib.resources import files

from penstock.errors import MissingExtra

try:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape
except ImportError:  # pragma: no cover - the extra is installed in CI
    raise MissingExtra("pages need the report extra: pip install 'penstock[report]'") from None

_TEMPLATES = files("penstock.report") / "templates"
_CODE = re.compile(r"`([^`]+)`")


def template_text(name: str) -> str:
    """Read the text of a template file of the package."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def render_template(name: str, **values: object) -> str:
    """Render a template with the given values."""
    return _environment().get_template(name).render(values)


def as_html(text: str) -> Markup:
    """Mark trusted text as HTML, so that it is not escaped."""
    return Markup(text)  # noqa: S704 - the callers pass drawings, scripts and styles made here


def code_marked(text: str) -> Markup:
    """Escape a sentence, and write its parts between backticks as code."""
    return as_html(_CODE.sub(r"<code>\1</code>", str(escape(text))))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(template_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code_marked"] = code_marked
    return environment
