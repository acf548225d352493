"""
Remote: what people ask of this node through Redis. The heartbeat's thread takes requests and tells of them; the node's
main loop does what they say.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from lowkiq import clock
from lowkiq.admin.beats import hands
from lowkiq.admin.beats.dumps import keep_dump
from lowkiq.admin.beats.hands import HandRequest, HandState
from lowkiq.codec import error_text
from lowkiq.log import get_logger
from lowkiq.process.asks import RESTART_ME
from lowkiq.queue.call import Caller
from lowkiq.shared_page import SharedPage

logger = get_logger()

#: Seconds that a supervisor has for its answer.
ANSWER_WITHIN: Final = 10.0
#: Answers that wait for Redis.
MOST: Final = 100

NO_SUPERVISOR: Final = (
    "this node has no supervisor that could start another: restart it by what has started it, its service, pod or "
    "terminal; or run nodes by lowkiq-supervisor"
)
NO_ANSWER: Final = (
    "its supervisor does not answer, and may be older than the node: on its machine, lowkiq-supervisor restart"
)


class Actor(Protocol):
    """The node, as far as it can be asked for something."""

    state: str
    page: SharedPage

    def quiet(self, why: str) -> None: ...
    def resume(self, why: str) -> None: ...
    def dump(self) -> str: ...
    def report(self, ask: str = "") -> None: ...


class Remote:
    """Requests on their way in, and answers on their way out."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._wake: Callable[[], None] = lambda: None
        self._beat_soon = self._wake
        self._asked: deque[HandRequest] = deque()
        self._answers: deque[tuple[HandRequest, str | None]] = deque(maxlen=MOST)
        self._restart: HandRequest | None = None
        self._answered_by = 0.0

    def connect(self, wake: Callable[[], None], beat_soon: Callable[[], None]) -> None:
        """The ways to wake the main loop, and the heartbeat."""
        self._wake, self._beat_soon = wake, beat_soon

    # ── the heartbeat's thread ──────────────────────────────────────────────────────────────────────────────────────

    def exchange(self, caller: Caller, namespace: str) -> None:
        """Tells what has been done, and takes what is asked for."""
        while self._answers:
            answer, text = self._answers[0]
            if text is not None:
                keep_dump(caller, namespace, answer.dump, self._node, socket.gethostname(), answer.who, text)
            hands.tell(caller, namespace, answer)
            self._answers.popleft()
        now, found = hands.take(caller, namespace, self._node)
        for request in found:
            if request.is_too_old(now):
                says = f"it was heard {now - request.asked_at:.0f} s after it was asked for: ask again if it is wanted"
                hands.tell(caller, namespace, msgspec.structs.replace(request, state="refused", says=says))
                continue
            hands.tell(caller, namespace, msgspec.structs.replace(request, state="heard"))
            self._asked.append(request)
        if found:
            self._wake()

    # ── the main loop ───────────────────────────────────────────────────────────────────────────────────────────────

    def act(self, node: Actor) -> None:
        """Does what was asked for."""
        while self._asked:
            request = self._asked.popleft()
            try:
                self._do(node, request)
            except Exception as error:
                logger.exception("asked_in_vain", action=request.action)
                self.answer(request, "refused", f"it has failed: {error_text(error)[:300]}")
        self._hear_supervisor(node.page)

    def _do(self, node: Actor, request: HandRequest) -> None:
        if request.action == "dump":
            self.answer(request, "done", dump=node.dump())
        elif node.state not in {"ready", "quiet"}:
            self.answer(request, "refused", f"it is {node.state}")
        elif request.action == "quiet":
            node.quiet(f"asked by {request.who}")
            self.answer(request, "done", "it takes no new jobs, and goes on with those that run")
        elif request.action == "resume":
            node.resume(f"asked by {request.who}")
            self.answer(request, "done", "it takes jobs")
        else:
            self._ask_supervisor(request, node.report)

    def answer(self, request: HandRequest, state: HandState, says: str = "", dump: str | None = None) -> None:
        """Tells how far it is; with the text of a dump, keeps that."""
        logger.info("asked_from_afar", action=request.action, who=request.who, state=state, says=says)
        id = secrets.token_hex(8) if dump is not None else ""
        self._answers.append((msgspec.structs.replace(request, state=state, says=says, dump=id), dump))
        self._beat_soon()

    def _ask_supervisor(self, request: HandRequest, send: Callable[[str], None]) -> None:
        """Has the supervisor, which `send` reaches, replace this node."""
        if "LOWKIQ_SUPERVISOR_PID" not in os.environ:
            self.answer(request, "refused", NO_SUPERVISOR)
            return
        if self._restart is not None:
            self.answer(request, "refused", "it is being replaced already")
            return
        self._restart, self._answered_by = request, clock.monotonic() + ANSWER_WITHIN
        send(f"{RESTART_ME}{request.id}")
        self.answer(request, "doing", "its supervisor was told")

    def _hear_supervisor(self, page: SharedPage) -> None:
        """Passes the supervisor's answer on."""
        if (request := self._restart) is None:
            return
        # The page was made by the supervisor's own code, which may be older than the node's.
        answers = getattr(page.read_bulletin(), "answers", ())
        answer = next((found for found in reversed(answers) if found.id == request.id), None)
        if answer is None:
            if clock.monotonic() > self._answered_by:
                self._restart = None
                self.answer(request, "refused", NO_ANSWER)
        elif answer.state == "refused":
            self._restart = None
            self.answer(request, "refused", answer.says)
        elif answer.says != request.says:
            self._restart, self._answered_by = msgspec.structs.replace(request, says=answer.says), float("inf")
            self.answer(request, "doing", answer.says)

    def leaving(self) -> None:
        """The node is told to end: if its supervisor was asked for that, the successor is ready."""
        if self._restart is not None:
            self.answer(self._restart, "done", "its successor is ready; this node hands its shards over and ends")
            self._restart = None
