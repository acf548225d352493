"""OutboxStore: what a relay needs of a table, in whatever library it is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from lowkiq.outbox.rows import Row


class Turn(Protocol):
    """A relay's turn with the table: no other relay sends anything during it."""

    def oldest(self, limit: int, now: float) -> Sequence[Row]:
        """
        Rows that are committed, in the order of their ids; also one with a lower id than others that were read before.
        Left out is a row whose `retry_at` is later than `now`, a Unix time, and all later ones of its queue and job_id.
        It must see all that earlier turns have changed: on PostgreSQL by READ COMMITTED.
        """

    def delete(self, ids: Sequence[int]) -> None:
        """Deletes rows that Redis has taken."""

    def refuse(self, ids: Sequence[int], error: str, retry_at: float) -> None:
        """Keeps rows with an error, counts their `tries`, and leaves them out until then, a Unix time."""


class OutboxStore(Protocol):
    """A table of jobs to be pushed."""

    def turn(self) -> AbstractContextManager[Turn | None]:
        """
        Takes the table's lock for one batch, and gives it up, with what was changed committed, at the end, or at the
        death of the process. None, without waiting, while another relay has it.
        """
