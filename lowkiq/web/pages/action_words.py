"""ActionWords: what actions have done, for people."""

from __future__ import annotations

from collections.abc import Mapping

from lowkiq.admin.jobs.deeds import DEEDS, Deed
from lowkiq.admin.jobs.states import STATES
from lowkiq.admin.jobs.undo import KEPT_SECONDS, is_deletion
from lowkiq.web.render import formatting


def jobs_of(view: str, count: int) -> str:
    """So many jobs of a view."""
    return formatting.plural(count, *STATES[view].noun)


def result_of(query: Mapping[str, str]) -> str | None:
    """
    What an action did, for the page after it. The address has only its name and numbers: nobody can put words of their
    own into a link to us.
    """
    deed, is_undone = DEEDS.get(query.get("done", "")), query.get("done") == "undo"
    moved, of = _count(query.get("moved")), _count(query.get("of"))
    if query.get("done") == "nothing":
        return "No job was selected: nothing was done."
    if (deed is None and not is_undone) or moved is None or of is None:
        return None
    if is_undone and not moved:
        return f"There was nothing left to undo: deletions are kept for {KEPT_SECONDS} s."
    done, others = (deed.done, deed.others) if deed else ("put back where they were", Deed.others)
    if moved >= of:
        return f"{formatting.plural(moved, 'job')} {done}."
    return f"{moved:,} of {formatting.plural(of, 'job')} {done}: the others {others}."


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004


def undo_of(query: Mapping[str, str]) -> str | None:
    """The name of the deletion that the page after it offers to undo."""
    name = query.get("undo", "")
    return name if query.get("done") == "delete" and is_deletion(name) else None
