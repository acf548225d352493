"""Times as elements: in UTC as the server renders them, in the reader's own zone once the script has seen them."""

from __future__ import annotations

import re
from typing import Final, Literal

from markupsafe import Markup, escape

from lowkiq.web.render import formatting

#: What is shown of a time: how long ago it was, its day and its clock, or the clock only. live.js has the same names.
Shows = Literal["ago", "moment", "seconds", "minutes"]
#: A time within a sentence, as formatting.moment has it.
_MOMENT: Final = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC\b")
#: Seconds that an axis shows at most → what is shown of its times. Of a longer one these are days, which stay in UTC.
_AXIS: Final[tuple[tuple[int, Shows], ...]] = ((600, "seconds"), (86_400, "minutes"))


def time(at: float, now: float | None = None) -> Markup:
    """How long ago, if we know the time now, and the moment when one points at it; else the moment."""
    return (
        _element(at, formatting.moment(at), "moment") if now is None else _element(at, formatting.ago(at, now), "ago")
    )


def clock(at: float) -> Markup:
    """The time of day."""
    return _element(at, formatting.clock_time(at), "seconds")


def on_axis(at: float, length: float, *, is_last: bool) -> Markup:
    """A time below a chart, of which `length` seconds are shown; the last one names the zone."""
    text = formatting.on_axis(at, length)
    shows = next((shows for most, shows in _AXIS if length <= most), None)
    if shows is None:
        return escape(f"{text} UTC" if is_last else text)
    return _element(at, text, shows) + (Markup('<span class="utc">&nbsp;UTC</span>') if is_last else "")


def timed(text: str) -> Markup:
    """A sentence with its times as elements."""
    element = r'<time datetime="\1T\2Z" title="\1 \2 UTC" data-shows="moment">\1 \2 UTC</time>'
    return Markup(_MOMENT.sub(element, str(escape(text))))  # noqa: S704 (it was escaped)


def _element(at: float, shown: str, shows: Shows) -> Markup:
    machine = formatting.machine_time(at)
    if machine is None:  # a number that is no time
        return escape(shown)
    return Markup('<time datetime="{}" title="{}" data-shows="{}">{}</time>').format(
        machine, formatting.moment(at), shows, shown
    )
