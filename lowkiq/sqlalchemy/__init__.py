"""
SQLAlchemy: jobs that are pushed if, and only if, a transaction commits. Needs the extra `sqlalchemy`.

`Outbox` writes them into a table in the same transaction, and a relay pushes them: nothing is lost, whatever dies.
`push_on_commit` pushes them right after the commit: what the process can't push then is lost with it.
"""

try:
    from lowkiq.sqlalchemy.async_relay import AsyncRelay
    from lowkiq.sqlalchemy.commits import push_on_commit
    from lowkiq.sqlalchemy.outbox import Outbox
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"sqlalchemy", "greenlet"}:
        raise
    raise ModuleNotFoundError(
        f"the outbox needs {error.name}, which comes with an extra: pip install 'lowkiq[sqlalchemy]'", name=error.name
    ) from error

__all__ = ["AsyncRelay", "Outbox", "push_on_commit"]
