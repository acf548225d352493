"""The addresses of every page there is."""

from __future__ import annotations

from urllib.parse import quote


def page_paths(queue: str, id: str) -> list[str]:
    """With a queue and one of its jobs."""
    views = ("due", "retries", "in_flight", "morgue")
    return [
        "/",
        "/?span=30d",
        "/nodes",
        *(f"/queues/{queue}?view={view}" for view in views),
        f"/queues/{queue}/job?id={quote(id, safe='')}",
        "/bulks",
    ]
