"""Templating: the environment of the templates, which escapes every value, and links under the mount prefix."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request

from lowkiq.admin import words
from lowkiq.admin.alerts.acknowledging import by_whom
from lowkiq.version import VERSION
from lowkiq.web.render import formatting, times
from lowkiq.web.render.charts import SPAN_WORDS
from lowkiq.web.security.paths import prefix_of

TEMPLATES: Final = Path(__file__).parents[1] / "templates"

#: Bytes of an id that are no UTF-8 travel through links as they are.
ERRORS: Final = "surrogateescape"
#: Characters of a parameter that are looked at: nothing that we link to is longer.
LONGEST_PARAMETER: Final = 4_096


@functools.cache
def environment() -> Environment:
    """The environment; one is enough, as nothing in it changes."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(inspect.getmembers(words, inspect.isfunction), field=as_field)
    made.filters.update(inspect.getmembers(formatting, inspect.isfunction))
    made.filters.update(by_whom=by_whom, time=times.time, clock=times.clock, timed=times.timed)
    made.globals.update(version=VERSION, percent=formatting.percent, nothing=formatting.NOTHING, spans=SPAN_WORDS)
    return made


def link(request: Request, path: str, **query: Any) -> str:
    """A path of the view under the prefix that it is mounted at. Parameters that are None are left out."""
    given = [(key, value) for key, value in query.items() if value is not None]
    text = urlencode(given, errors=ERRORS)
    return f"{prefix_of(request.scope)}{quote(path)}{'?' if text else ''}{text}"


def query_of(request: Request) -> dict[str, str]:
    """The parameters of the address; of repeated ones the last. Bytes that are no UTF-8 are kept as surrogates."""
    pairs = parse_qsl(request.scope["query_string"].decode("utf-8", ERRORS), errors=ERRORS)
    return {key: value[:LONGEST_PARAMETER] for key, value in pairs}


def as_field(id: str) -> str:
    """An id as a form carries it: browsers change line ends and control bytes of what they send."""
    return quote(id, safe="", errors=ERRORS)


def from_field(text: str) -> str:
    """The id that `as_field` was given."""
    return unquote(text, errors=ERRORS)
