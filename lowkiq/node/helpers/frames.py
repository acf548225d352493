"""Frames: what a node and a helper tell each other over a socket, each msgpack with its length before it."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from lowkiq.codec import encodable, format_error
from lowkiq.errors import LONGEST_DELAY, MOST_KEY_BYTES, CheckpointFailed, LowkiqError, PerformTimeout, ProcessDied
from lowkiq.job import KEPT_BYTES, Job
from lowkiq.queue.shard import Fate

T = TypeVar("T")

_HEAD: Final = struct.Struct("<Q")
#: Bytes of a helper's frame, at most: the largest is a checkpoint of the largest payload that settings allow.
MOST_BYTES: Final = 512 << 20
#: Errors that go by name from one process to the other.
ERRORS: Final[dict[str, Callable[[str], Exception]]] = {
    "CheckpointFailed": CheckpointFailed,
    "PerformTimeout": PerformTimeout,
    "ProcessDied": ProcessDied,
    "ValueError": ValueError,
}

Count = Annotated[int, Meta(ge=0)]
Delay = Annotated[float, Meta(ge=0, le=LONGEST_DELAY)]


class Rubbish(LowkiqError):
    """The other end has sent what is no frame."""


class _Frame(msgspec.Struct, array_like=True):
    """By position: both ends are of one program."""


class Told(_Frame):
    kind: Literal["CheckpointFailed", "PerformTimeout", "ProcessDied", "ValueError"]
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Told:
        """An error as the other process is told of it: by its name if that has one there."""
        name: Any = type(error).__name__
        return (
            cls(name, encodable(str(error))) if name in ERRORS else cls("ProcessDied", encodable(format_error(error)))
        )

    def error(self) -> Exception:
        return ERRORS[self.kind](self.text)


class RawJob(_Frame):
    """A job with its payloads as they were claimed."""

    id: bytes
    payloads: list[bytes]
    scores: tuple[float, ...]
    perform_in: float
    retry_count: int
    payload_count: int
    checkpoint: bytes | None
    tags: tuple[str, ...]
    contexts: tuple[str, ...]

    @classmethod
    def of(cls, job: Job) -> RawJob:
        id = job.id.encode("utf-8", KEPT_BYTES)
        return cls(
            id, job.payloads, job.scores, job.perform_in, job.retry_count, job.payload_count, job.checkpoint, job.tags,
            job.contexts,
        )  # fmt: skip

    def job(self) -> Job:
        """The job, with payloads that are still to be loaded."""
        return Job(
            id=self.id.decode("utf-8", KEPT_BYTES),
            payloads=self.payloads,
            scores=self.scores,
            perform_in=self.perform_in,
            retry_count=self.retry_count,
            payload_count=self.payload_count,
            checkpoint=self.checkpoint,
            tags=self.tags,
            contexts=self.contexts,
        )


class Work(_Frame, tag="work"):
    """
    To a helper: a batch to perform; or, with an error, one that has failed so, whose hooks are to be called; or that
    deaths have buried.
    """

    queue: str
    shard: int
    epoch: str
    node: str
    jobs: list[RawJob]
    error: Told | None = None
    #: What people have set live of what decides on failures.
    live: dict[str, int | str] = {}
    is_buried: bool = False


class Answer(_Frame, tag="answer"):
    """To a helper: to what it has asked."""

    is_so: bool = True
    error: Told | None = None


class Ready(_Frame, tag="ready"):
    """From a helper: it has begun; with an error, it can't: on_server_init has failed."""

    error: str = ""


class IsLost(_Frame, tag="is_lost"):
    """From a helper: asks whether the lease is lost."""


class MayStart(_Frame, tag="may_start"):
    """From a helper: asks whether the batch may still begin, as it has taken its time until here."""


class Report(_Frame, tag="report"):
    """From a helper: how far the batch is."""

    share: Annotated[float, Meta(ge=0, le=1)]
    note: str


class Keep(_Frame, tag="keep"):
    """From a helper: asks for a checkpoint of a job, by its place in the batch, to be kept."""

    job: Count
    checkpoint: bytes


class Failed(_Frame):
    """A job, by its place in the batch, that is tried again."""

    job: Count
    retry_count: Count
    delay: Delay
    error: str


class Slept(_Frame):
    """A job, by its place in the batch, that comes back later. `is_limited`: what shares its rate rests until then."""

    job: Count
    delay: Delay
    is_limited: bool = False
    #: What is to rest; None: the job's own key.
    key: Annotated[str, Meta(max_length=MOST_KEY_BYTES)] | None = None


class Buried(_Frame):
    """A job, by its place in the batch, that is not tried again."""

    job: Count
    error: str
    fate: Fate


class BadPayload(_Frame):
    """A payload, by its place in its job, that can't be loaded."""

    job: Count
    payload: Count
    error: str


class Follows(_Frame):
    """A letter of a job, by its place in the batch (queue/letters.py)."""

    job: Count
    record: bytes


class Ended(_Frame, tag="ended"):
    """From a helper: a batch has ended; jobs that are not named are done."""

    failed: list[Failed]
    buried: list[Buried]
    spoiled: list[BadPayload]
    snoozed: list[Slept] = msgspec.field(default_factory=list)
    #: Groups of errors, and how many jobs have failed of each (ledger.py).
    counted: dict[str, Annotated[int, Meta(ge=0, le=1_000_000)]] = msgspec.field(default_factory=dict)
    #: The helper is about to end.
    is_last: bool = False
    #: What follows from jobs that are done.
    letters: list[Follows] = msgspec.field(default_factory=list)
    #: None of its jobs was begun.
    is_unstarted: bool = False


FromNode = Work | Answer
FromHelper = Ready | IsLost | MayStart | Report | Keep | Ended


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that wait as long as they have to, whatever the application's default for sockets is."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(None)
    return ours, theirs


def end_of(descriptor: int) -> socket.socket:
    """Such an end that another process has made."""
    end = socket.socket(fileno=descriptor)
    end.settimeout(None)
    return end


class Channel(Generic[T]):
    """
    One end of the socket.

    Args:
        type: of the frames that come.
        wait: called, of a socket that does not block, with the events of poll(2) to wait for.
    """

    def __init__(self, end: socket.socket, type: Any, wait: Callable[[int], None] | None = None) -> None:
        self._socket = end
        self._wait = wait
        self._encode_into = msgspec.msgpack.Encoder().encode_into
        self._decode: Callable[[bytearray], T] = msgspec.msgpack.Decoder(type).decode

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: _Frame) -> None:
        """Sends a frame, however large. Raises OSError."""
        data = bytearray(_HEAD.size)
        self._encode_into(frame, data, _HEAD.size)
        _HEAD.pack_into(data, 0, len(data) - _HEAD.size)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait_for(select.POLLOUT)

    def receive(self) -> T:
        """Waits for a frame. Raises EOFError, OSError, or Rubbish."""
        (length,) = _HEAD.unpack(self._read(_HEAD.size))
        if length > MOST_BYTES and self._wait is not None:
            raise Rubbish(f"a frame of {length:,} bytes")
        data = self._read(length)
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Rubbish(str(error)) from error

    def end(self) -> None:
        """Tells the other end that nothing more comes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except BlockingIOError:
                self._wait_for(select.POLLIN)
                continue
            if not got:
                raise EOFError
            rest = rest[got:]
        return data

    def _wait_for(self, events: int) -> None:
        if self._wait is not None:
            self._wait(events)
