"""
Incidents: what happened to nodes and queues, and what people did, for thirty days: at most 10,000, or about 5 MB.

Whoever sees something notes it, by a key that names this one occurrence: told again, it stays one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from redis.exceptions import RedisError

from lowkiq.codec import encodable
from lowkiq.log import get_logger
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked, raise_first
from lowkiq.queue.unreadable import Unreadable, finite, is_another_type, parsed, quoted

logger = get_logger()

#: How many are kept, and for how many seconds.
MOST: Final = 10_000
KEPT_SECONDS: Final = 30 * 86_400
#: Incidents that one script writes, ends or reads.
AT_ONCE: Final = 500
#: Characters of a sentence, of a name, and of a key that is kept as it is; a longer one is kept as its digest.
MOST_SAID, MOST_NAME, MOST_KEY = 500, 200, 120
#: Bytes of one that are read: all of its texts have room, escaped.
MOST_BYTES: Final = 16_384
#: Kinds of what nodes and supervisors note, and of what people do, but to jobs (deeds.py). Alerts bring their own.
KINDS: Final = (
    "death", "hang", "crash loop", "recycle", "recycle cut off", "lease lost", "started", "retiring", "stopped",
    "balanced", "moved", "forget", "deploy", "scale", "quiet", "resume", "restart", "dump", "bulk action",
    "undo", "pause", "acknowledged", "Redis away", "settings changed",
    "reshard", "resharded", "mishap",
)  # fmt: skip

Severity = Literal["bad", "warn", "note"]
_Said = Annotated[str, Meta(max_length=MOST_SAID)]
_Name = Annotated[str, Meta(max_length=MOST_NAME)]


class NewIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that is to be noted."""

    #: Names this occurrence, so with what tells it from the next one of its kind: a process, a number, a time.
    key: str
    kind: str
    severity: Severity
    #: A sentence without its full stop.
    says: str
    node: str = ""
    host: str = ""
    queue: str = ""
    #: Who did it, if somebody did.
    who: str = ""
    #: It goes on until somebody ends it.
    lasts: bool = False
    #: When it was, by Redis's clock; None: now.
    at: float | None = None


class Incident(msgspec.Struct, frozen=True):
    """An incident that was noted."""

    #: When it was, or began, by Redis's clock.
    at: float
    kind: str
    severity: Severity
    says: str
    #: When it ended; None: it goes on, or is none that lasts.
    until: float | None
    node: str = ""
    host: str = ""
    queue: str = ""
    who: str = ""
    lasts: bool = False
    #: Its name; as a cursor, the place behind it.
    key: str = ""

    @property
    def goes_on(self) -> bool:
        """True for one that lasts, and has not ended."""
        return self.lasts and self.until is None


class _Stored(msgspec.Struct, frozen=True):
    """The part that is written as JSON."""

    kind: _Name
    severity: Severity
    says: _Said
    node: _Name = ""
    host: _Name = ""
    queue: _Name = ""
    who: _Name = ""
    lasts: bool = False


def note(caller: Caller, namespace: str, news: Sequence[NewIncident]) -> int:
    """Notes incidents, those that were noted already not again. Returns how many are new."""
    new = 0
    for some in chunked(news, AT_ONCE):
        rows = [word for one in some for word in (_key(one.key), _time(one.at), _text(one))]
        new += caller.run(Call("note_incidents", _keys(namespace), [MOST, KEPT_SECONDS, *rows], int))
    return new


def note_deed(caller: Caller, namespace: str, queue: str, kind: str, says: str, who: str) -> None:
    """Notes what somebody did to a queue."""
    new = NewIncident(key=f"deed:{secrets.token_hex(8)}", kind=kind, severity="note", says=says, queue=queue, who=who)
    try_to_note(caller, namespace, new)


def try_to_note(caller: Caller, namespace: str, new: NewIncident) -> None:
    """Notes an incident, if that can be."""
    with tolerant():
        note(caller, namespace, [new])


@contextlib.contextmanager
def tolerant() -> Iterator[None]:
    """What was done was done: that it can't be noted is no error of it."""
    try:
        yield
    except RedisError as error:
        logger.warning("deed_not_noted", error=f"{type(error).__name__}: {error}"[:300])


def end(caller: Caller, namespace: str, ended: Mapping[str, float | None]) -> int:
    """Ends incidents: the key each was noted by → when, or None for now. Returns how many went on until now."""
    log, _, ends = _keys(namespace)
    pairs = [(_key(key), _time(at)) for key, at in ended.items()]
    calls = (Call("end_incidents", [log, ends], list(chain(*some)), int) for some in chunked(pairs, AT_ONCE))
    return sum(map(caller.run, calls))


def read_incidents(
    caller: Caller,
    namespace: str,
    *,
    queue: str | None = None,
    node: str | None = None,
    kind: str | None = None,
    who: str | None = None,
    since: float | None = None,
    until: float | None = None,
    limit: int = 200,
    cursor: str = "",
) -> list[Incident]:
    """
    The newest first.

    Args:
        queue, node, kind: only its own. who: a part of a name; only what that person did.
        since, until: only those that were, or began, between these times.
        cursor: the key of the last one of the page before.
    """
    wanted = [(name, value) for name, value in (("queue", queue), ("node", node), ("kind", kind)) if value is not None]
    found, met = list[Incident](), list[Unreadable]()
    for incident in _read(caller, namespace, until, cursor, met):
        if len(found) >= limit or (since is not None and incident.at < since):
            break
        is_theirs = who is None or who.casefold() in incident.who.casefold()
        if is_theirs and all(getattr(incident, name) == value for name, value in wanted):
            found.append(incident)
    caller.met.tell(keys.incidents(namespace), met[:10])
    return found


def _read(caller: Caller, namespace: str, until: float | None, last: str, met: list[Unreadable]) -> Iterator[Incident]:
    latest = "+inf" if until is None else f"{until:.6f}"
    for _ in range(0, MOST, AT_ONCE):
        page = last.encode("utf-8", "surrogateescape")
        (reply,) = caller.run_all([Call("incidents", _keys(namespace), [page, latest, AT_ONCE, MOST_BYTES], list)])
        if is_another_type(reply):  # the next one that is noted removes what is there
            caller.read(list(zip(("ZCARD", "HLEN", "HLEN"), _keys(namespace), strict=True)), 0)
            return
        rows = list(zip(*[iter(raise_first([reply])[0])] * 4, strict=True))
        yield from filter(None, (_incident(namespace, met, *row) for row in rows))
        if len(rows) < AT_ONCE:
            return
        last = rows[-1][0].decode("utf-8", "surrogateescape")


def _incident(namespace: str, met: list[Unreadable], key: bytes, at: bytes, text: bytes, end: bytes) -> Incident | None:
    def parse() -> Incident:
        said = msgspec.structs.asdict(_STORED.decode(text))
        until = finite(end) if end else None
        return Incident(at=finite(at), until=until, key=key.decode("utf-8", "surrogateescape"), **said)

    where = f"{quoted(keys.incidents_said(namespace))} {quoted(key)}"
    return parsed(met, where, f"ZREM {quoted(keys.incidents(namespace))} {quoted(key)}", parse)


def _keys(namespace: str) -> list[str]:
    return [keys.incidents(namespace), keys.incidents_said(namespace), keys.incidents_ends(namespace)]


def _key(key: str) -> str:
    plain = re.fullmatch(rf"[ -~]{{1,{MOST_KEY}}}", key)
    return key if plain else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _time(at: float | None) -> str:
    return "" if at is None else f"{at:.6f}"


def _text(new: NewIncident) -> bytes:
    stored = _Stored(
        kind=_cut(new.kind), severity=new.severity, says=_cut(new.says, MOST_SAID), node=_cut(new.node),
        host=_cut(new.host), queue=_cut(new.queue), who=_cut(new.who), lasts=new.lasts,
    )  # fmt: skip
    return msgspec.json.encode(stored)


def _cut(text: str, most: int = MOST_NAME) -> str:
    return encodable(text)[:most]


_STORED: Final = msgspec.json.Decoder(_Stored)
