"""Dumps: what all threads of a node did, as people asked for it from afar: the last twenty, for a week."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lowkiq.codec import encodable
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller

#: How many are kept, for how many seconds, and bytes of one.
MOST, KEPT_SECONDS, MOST_TEXT = 20, 7 * 86_400, 1 << 20
#: Bytes of what is said of one.
MOST_BYTES: Final = 4_096
#: End of a text that was cut.
CUT: Final = "\n… (cut: a dump that is kept in Redis has at most 1 MiB)\n"

_Name = Annotated[str, Meta(max_length=300)]
_ID: Final = re.compile(r"[0-9a-f]{16}")


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """A dump, but for its text."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    node: _Name
    host: _Name
    who: _Name
    #: By Redis's clock.
    at: Annotated[float, Meta(ge=-1e11, le=1e11)]


def keep_dump(caller: Caller, namespace: str, id: str, node: str, host: str, who: str, text: str) -> None:
    said = msgspec.json.encode({"id": id, "node": node[:300], "host": host[:300], "who": encodable(who)[:300]})[:-1]
    data = encodable(text).encode()
    if len(data) > MOST_TEXT:
        data = data[: MOST_TEXT - len(CUT.encode())].decode(errors="ignore").encode() + CUT.encode()
    caller.run(Call("keep_dump", [keys.dumps(namespace)], [id, said, data, MOST, KEPT_SECONDS], int))


def read_dumps(caller: Caller, namespace: str) -> list[Dump]:
    """The newest first."""
    (ids,) = caller.read([("ZREVRANGE", keys.dumps(namespace), 0, MOST - 1)], [])
    return _read(caller, namespace, [id.decode("utf-8", "replace") for id in ids])


def read_dump(caller: Caller, namespace: str, id: str) -> tuple[Dump, str] | None:
    """A dump with its text; None when there is no such one, or no longer."""
    found = _read(caller, namespace, [id])
    (text,) = caller.read([("GETRANGE", f"{keys.dump(namespace, id)}:text", 0, MOST_TEXT - 1)], b"")
    return (found[0], text.decode("utf-8", "replace")) if found else None


def _read(caller: Caller, namespace: str, ids: Sequence[str]) -> list[Dump]:
    wanted = [keys.dump(namespace, id) for id in ids if _ID.fullmatch(id)]
    texts = caller.read([("GETRANGE", key, 0, MOST_BYTES) for key in wanted], b"")
    found = [caller.met.whole(key, _DUMP.decode, text) for key, text in zip(wanted, texts, strict=True)]
    return [dump for dump in found if dump]


_DUMP: Final = msgspec.json.Decoder(Dump)
