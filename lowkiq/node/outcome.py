"""What became of a claim's jobs, collected batch by batch until it is settled."""

from __future__ import annotations

from collections.abc import Sequence

from lowkiq.store.shard import Exhausted, Failure, Outcome, Rest, Spoiled


class OutcomeLog:
    """
    The outcomes of one claim that Redis does not know yet. Not safe between threads: its shard handler locks.

    What has been sent stays here until it is confirmed, since a reply can be lost and a settle can be repeated.
    """

    def __init__(self, spoiled: Sequence[Spoiled] = ()) -> None:
        self.acked: list[str] = []
        self.failed: list[Failure] = []
        self.exhausted: list[Exhausted] = []
        self.spoiled = list(spoiled)
        #: The rest of what spoiled payloads' ids hold, and jobs that a drain keeps from starting.
        self.released: list[str] = list(dict.fromkeys(row.id for row in spoiled))
        #: Monotonic time of the first outcome in here.
        self.since: float | None = None

    def __bool__(self) -> bool:
        return bool(self.acked or self.failed or self.exhausted or self.spoiled or self.released)

    def snapshot(self, rest: Rest, *, has_several: bool) -> Outcome:
        """
        All of it, to be sent. With rest "ack" what was acked need not be named: it is what is left of the claim.
        """
        return Outcome(
            acked=() if rest == "ack" else tuple(self.acked),
            released=tuple(self.released),
            failed=tuple(self.failed),
            exhausted=tuple(self.exhausted),
            spoiled=tuple(self.spoiled),
            rest=rest,
            has_several=has_several,
        )

    def confirm(self, sent: Outcome) -> None:
        """Redis knows what was sent; what came since stays."""
        del self.acked[: len(sent.acked)]
        del self.released[: len(sent.released)]
        del self.failed[: len(sent.failed)]
        del self.exhausted[: len(sent.exhausted)]
        del self.spoiled[: len(sent.spoiled)]
        self.since = None
