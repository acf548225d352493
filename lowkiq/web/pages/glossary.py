"""Page of help: the words of the view, a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lowkiq.web.pages.live import Visit
from lowkiq.web.view import View

#: Title → words with their meanings. Pages link to a word by `/help#word`.
GLOSSARY: Final = (
    (
        "Jobs",
        (
            ("job", "An id with its payloads. Jobs with one id never run in parallel, and never out of order."),
            ("payload", "One value that was pushed. Payloads pushed for an id that is queued already join it: merged."),
            (
                "score",
                "What orders the payloads of an id: by default the time of their push, in seconds since 1970.",
            ),
            ("queued", "Pushed, and not in a node's hands: waiting, scheduled and blocked together."),
            ("waiting", "Due by now: run next. One that waits is late."),
            ("scheduled", "Due later: pushed for then, or to be tried again then."),
            ("running", "Claimed by a node, and not yet done: being performed, or next in its hand."),
            ("retrying", "Failed, and to be performed again. It also counts as waiting or scheduled."),
            ("blocked", "Failed too often, with all its payloads kept: it waits until retried, skipped or deleted."),
            ("held", "Somebody keeps an id from running until it is released. Pushes go on, and merge."),
            ("lag", "How late the oldest job that is due is by now."),
            ("morgue", "The dead letters of a queue: jobs that failed too often. They stay until revived or deleted."),
            ("processed", "Jobs that were performed to their end, or their number a second."),
            ("failed", "Tries that ended with an error; each may be tried again."),
            ("merged", "The share of the pushed payloads that joined an id queued already: one run for several."),
            ("superseded", "Merged and dropped: only the payload with the highest score, or the lowest, is kept."),
            ("paused", "Somebody has stopped a queue: nothing of it starts until it is resumed. Pushes go on."),
            ("max_running", "Batches of a queue that may run at once, on all nodes: further ones wait for a place."),
            ("claim", "Jobs that a node has taken from a shard and not settled yet."),
            ("crash", "A node, or the job's own process, died while it ran. Three for which it is blamed bury it."),
            ("tag", "A word that was pushed with a job: jobs are found, counted and acted on by it."),
            ("tracked", "An id that is pinned on the overview; what happens to it is kept."),
        ),
    ),
    (
        "Shards and nodes",
        (
            ("shard", "A part of a queue; an id is always in the same one. A shard belongs to one node at a time."),
            ("node", "One process that performs jobs, with several threads. Nodes are numbered from 0."),
            ("lease", "A node's hold on a shard. It renews it all the time; when it dies the lease ends by itself."),
            (
                "owner",
                "The node with a shard's lease: by its share of the threads, its number, or the shard's load.",
            ),
            (
                "token",
                "A shard's fencing token: a number that rises with each owner: earlier ones are refused.",
            ),
            ("fostering", "A node stands in for one that is away: it runs that one's shards, and gives them back."),
            ("unowned", "A shard with jobs to do that no node has a lease on."),
            ("supervisor", "The process that starts nodes on a machine, watches them and replaces them."),
        ),
    ),
    (
        "States of nodes",
        (
            ("ready", "It claims and performs jobs."),
            ("quiet", "It was told to claim nothing; what it has in hand it finishes."),
            ("draining", "It hands its shards over, and then ends."),
            ("retiring", "It does so as its supervisor replaces it."),
            ("late", "Two of its heartbeats did not come. Its shards move on when its leases end."),
            ("missing", "Nothing was heard of that number for half a minute."),
            ("doubled", "Two nodes have one number: all but one stand by."),
        ),
    ),
    (
        "What people do",
        (
            ("perform now", "A scheduled job becomes due at once."),
            ("cancel", "What is queued of an id is deleted, and what runs is asked to stop."),
            ("bury", "A queued job goes to the morgue without another try."),
            ("revive", "A job of the morgue goes back to its queue, due at once."),
            ("retry", "A blocked job goes on with all its payloads, due at once."),
            ("skip", "A blocked job loses its oldest payload, and goes on with the others."),
            ("hold", "An id is kept from running until somebody lets it go."),
            ("bulk action", "An action on all jobs that match. It runs in the background, and can be stopped."),
            ("restart", "A successor takes over from a node, whose jobs have the drain timeout to end."),
            ("dump", "What each thread and task of a node is doing right now, with its stack."),
        ),
    ),
    (
        "This view",
        (
            ("live", "The page asks for news each second; in the background every ten."),
            ("stale", "Nothing new came for three seconds: what the page shows is how it was, not how it is."),
            ("urgent", "Jobs do not run, or may be lost: act now."),
            ("warning", "That may come, later."),
            ("alert", "Something that is wrong now, with since when and what to do. They go by themselves."),
            ("incident", "Something that happened, or that somebody did. They are kept for 30 days."),
        ),
    ),
)


def build(_: View, visit: Visit) -> Mapping[str, Any]:
    return {"glossary": GLOSSARY if visit.is_whole else ()}
