"""Search page: jobs by their ids over all queues. An exact id that is in one queue only opens its job at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from lowkiq.admin.jobs.finder import LONGEST, RUNNING, Findings
from lowkiq.admin.jobs.search import is_glob
from lowkiq.web.pages.live import Visit
from lowkiq.web.render.templating import link
from lowkiq.web.view import View


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """What was found. An exact id is looked for anew while the page is open; a pattern, which costs more, is not."""
    text, cursor = visit.query.get("q", "").strip(), visit.query.get("cursor") or None
    is_pattern = is_glob(text)
    found = Findings([], None, None)
    if text and (visit.is_whole or (visit.reads and not is_pattern)):
        found = view.backend.finder().find(text, cursor)
    if visit.is_whole and not is_pattern and len({one.queue for one in found.jobs}) == 1:
        queue, job = found.jobs[0]
        raise HTTPException(303, headers={"Location": link(visit.request, f"/queues/{queue}/job", id=job.id)})
    return {
        "q": text,
        "rows": list(zip(found.jobs, view.backend.reasons(visit.snapshot.around, found.jobs), strict=True)),
        "is_pattern": is_pattern,
        "queues": len(visit.snapshot.queues),
        "running": RUNNING,
        "beginning": f"{text[: LONGEST - 1]}*",
        "next": found.next,
        "scanned": found.scanned,
    }
