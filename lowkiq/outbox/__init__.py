"""
The outbox, without any ORM: jobs are written into a table in the transaction of the change that they tell of, and a
relay pushes them: each at least once, and those of a job id in the order of their rows.

`lowkiq.sqlalchemy` has the table for SQLAlchemy. For another library, write an `OutboxStore`, and put with `put`.
"""

from lowkiq.outbox.putting import aput, put
from lowkiq.outbox.relay import Relay, settle
from lowkiq.outbox.rows import FIRST_SCORE, NewRow, Row, UnreadableRow
from lowkiq.outbox.sending import Outcome, send
from lowkiq.outbox.store import OutboxStore, Turn, advisory_key, file_lock

__all__ = [
    "FIRST_SCORE",
    "NewRow",
    "OutboxStore",
    "Outcome",
    "Relay",
    "Row",
    "Turn",
    "UnreadableRow",
    "advisory_key",
    "aput",
    "file_lock",
    "put",
    "send",
    "settle",
]
