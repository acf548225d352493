"""Sessions of the web view that somebody has ended, for all its processes to know until their cookies are over."""

from __future__ import annotations

from typing import Final

from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller

#: Sessions that are remembered; of more, those that end first are forgotten.
MOST: Final = 1_000


def end_session(caller: Caller, namespace: str, nonce: str, seconds: int) -> None:
    """Remembers for so long that a session is over."""
    caller.run(Call("end_session", [keys.ended_sessions(namespace)], [nonce, seconds, MOST], int))


def read_ended_sessions(caller: Caller, namespace: str) -> set[str]:
    """The sessions that are over."""
    (nonces,) = caller.read([("ZREVRANGE", keys.ended_sessions(namespace), 0, MOST - 1)], [])
    return {nonce.decode("ascii", "replace") for nonce in nonces}
