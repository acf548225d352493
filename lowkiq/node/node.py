"""Node: the life of one process that runs jobs: boot, run, drain. Its main thread starts the others."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from redis.exceptions import RedisError

from lowkiq import clock, telemetry
from lowkiq.admin.beats.members import FOSTER
from lowkiq.app import Lowkiq
from lowkiq.codec import error_text
from lowkiq.environment import ExitCode, state_directory
from lowkiq.errors import ForkServerDied, SettingsError, ThreadsStuck
from lowkiq.log import get_logger
from lowkiq.node.boot import (
    call_on_server_init,
    make_fork_server,
    open_queues,
    refuse,
    refuse_greenlets,
    say_last_words,
)
from lowkiq.node.chores.burials import Burials
from lowkiq.node.chores.clockwork import Clockwork
from lowkiq.node.chores.post import Post
from lowkiq.node.counts.incident_notes import LEAVES, started
from lowkiq.node.doorbell import CANCEL, LETTERS, PAUSE, RECURS, WANTED, Doorbell
from lowkiq.node.drain import BurstEnd, Drain
from lowkiq.node.health.dump import dump
from lowkiq.node.health.flushes import flushes_of
from lowkiq.node.health.heartbeat import HealthReport, Heartbeat
from lowkiq.node.health.housekeeping import Housekeeping
from lowkiq.node.health.load import load_of
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.hook_calls import call_hook
from lowkiq.node.job_thread import JobThread
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.leases.lease import Lease
from lowkiq.node.live_settings import LiveSettings
from lowkiq.node.ownership.elastic import Elastic
from lowkiq.node.ownership.following import Following
from lowkiq.node.quiet import hush
from lowkiq.node.remote import Remote
from lowkiq.node.runtime import Runtime, chosen_weights, chosen_workers
from lowkiq.node.spares import Spares, free_threads
from lowkiq.node.threads import make_threads, tuned
from lowkiq.process import ending
from lowkiq.process.ending import leave_within
from lowkiq.process.faults import dump_on_faults
from lowkiq.process.lines import keep_streams
from lowkiq.process.signals import SignalInbox, spare_forks
from lowkiq.queue.call import Caller
from lowkiq.shared_page import SharedPage
from lowkiq.transport.connect import check_connections, client_for_node, connections_of_node

logger = get_logger()

#: The signals that it acts on.
HANDLED: Final = (
    signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGXCPU,
)  # fmt: skip
#: Seconds between reports to the supervisor, and between checks whether the main thread has something to do.
TICK: Final = 1.0
#: Seconds between checks whether all is done, with `burst`.
BURST_TICK: Final = 0.1
#: Seconds that jobs get after a second INT, or QUIT.
ABANDON: Final = 2.0
#: Seconds after the drain's in which the parts of the end that have missed it are cut off: before a supervisor does it.
OVERDUE: Final = 1.5
#: Seconds to wait for the doorbell and the first leases before the node says that it is ready.
READY_WITHIN: Final = 5.0


class Node:
    """
    One node.

    Args:
        node_number: from 0; which part of the shards the splitter gives it.
        is_elastic: nodes share the shards among themselves; numbers are names then.
        queues: the queues that it runs, None for all; a mapping has their weights too, None for a queue without.
        threads: how many, whatever the application's settings say.
        burst: end once nothing is due or in flight in any of these queues.
        name: in Redis; by default host:pid:random.
        dead_nodes: names of nodes known to be dead, whose shards are taken without waiting for the lease.
        page: shared with its supervisor, which learns what ran when the node has died, and tells who else has.
        ends_process: nothing comes after it but the process's end, so signals stay held back then.
        source: where the application comes from, as `lowkiq -r` is told it; None: helpers can't begin anew.
        on_state: called in the main thread, at each change of state and about every second, with the state, and the
            node's load.
    """

    def __init__(
        self,
        app: Lowkiq,
        *,
        node_number: int = 0,
        number_of_nodes: int = 1,
        is_elastic: bool = False,
        queues: Collection[str] | None = None,
        threads: int | None = None,
        burst: bool = False,
        quiet: bool = False,
        name: str | None = None,
        dead_nodes: Sequence[str] = (),
        page: SharedPage | None = None,
        ends_process: bool = False,
        source: str | None = None,
        on_state: Callable[[str, int, int, int, int, int], None] | None = None,
    ) -> None:
        if not 0 <= node_number < number_of_nodes:
            raise SettingsError(f"node_number {node_number} of {number_of_nodes} nodes: it must be from 0 to one less")
        self._workers_by_queue, self._weights = chosen_workers(app, queues), chosen_weights(app, queues)
        self._declared = [row for row in app._declared if row.worker.queue_name in self._workers_by_queue]
        self._settings = replace(app.settings, threads_per_node=threads) if threads else app.settings
        self._node_number, self._number_of_nodes = node_number, number_of_nodes
        # A burst ends with its own part; and a splitter of the user's may keep shards apart, and away, on purpose.
        self._is_elastic = is_elastic and not burst and self._settings.build_splitter is None
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"
        self._dead_nodes, self.page = tuple(dead_nodes), page or SharedPage()
        #: Quiet: told to take no jobs, perhaps before it could take any.
        self._is_burst, self._is_quiet, self._ends_process = burst, quiet, ends_process
        self._source = source
        self._remote = Remote(self.name)
        self._on_state = on_state or (lambda *_: None)
        self._workers: list[JobThread] = []
        self._fork_server: ForkServer | None = None
        self.state = "starting"
        self._fatal_error: BaseException | None = None
        self._interrupts = 0
        #: Signals that were taken back, and whose they were.
        self._takers: set[tuple[int, str]] = set()
        self._leave_at = math.inf  # when jobs that still run are left (monotonic)
        self._beat: Callable[[], None] = lambda: None

    def run(self) -> int:
        """Runs until drained, in the main thread. Returns the exit code."""
        with contextlib.ExitStack() as ends:
            self._signals = ends.enter_context(
                SignalInbox(HANDLED, ends_process=self._ends_process, on_interrupt=self._on_interrupt)
            )
            spare_forks()
            if self._ends_process:
                keep_streams()
            dump_on_faults()  # one that is wedged in C code can't answer TTIN, but ABRT
            self._set_state("starting")
            try:
                refuse_greenlets()
                self._fork_server = make_fork_server(
                    self._workers_by_queue, self._settings, self.page, self._fatal, self._signals.close, self._source
                )
                if self._fork_server:
                    ends.callback(self._fork_server.close)
                with contextlib.ExitStack() as undo:
                    if not self._boot(undo):
                        return ExitCode.ABANDONED if self._interrupts > 1 else ExitCode.DRAINED
                    undo.pop_all()
                ends.enter_context(tuned())
                self._start_threads()
            except Exception as error:  # noqa: BLE001 (it is told of there)
                self._signals.call(partial(say_last_words, self._settings, error))
                return refuse(error)
            self._loop()
            return self._drain()

    # ── boot ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _boot(self, undo: contextlib.ExitStack) -> bool:
        """Waits for Redis, opens the queues, and makes the threads. False: asked to stop meanwhile."""
        may_need = connections_of_node(self._settings.threads_per_node)
        client = client_for_node(self._settings, may_need)
        check_connections(client, may_need)
        self._runtime = runtime = Runtime(
            node=self.name,
            settings=self._settings,
            caller=Caller(client),
            fatal=self._fatal,
            workers=self._workers_by_queue,
            weights=self._weights,
            node_number=self._node_number,
            number_of_nodes=self._number_of_nodes,
            is_elastic=self._is_elastic,
            known_dead=self._dead_nodes,
            page=self.page,
        )
        undo.callback(runtime.caller.close)
        undo.callback(runtime.loop.close, self._settings.drain_timeout)
        if not open_queues(runtime, self._wait):
            return False
        if self._signals.call(partial(call_on_server_init, runtime)):
            logger.warning("on_server_init_interrupted", node=self.name)
            return not self._wait(0)
        self._take_signals_back()
        self._make_threads()
        return True

    def _make_threads(self) -> None:
        runtime = self._runtime
        self._workers = make_threads(runtime, self._fork_server)
        pools = {lease: thread.pool for thread in self._workers for lease in thread.pool.leases}
        self._pools = pools
        self._keeper = LeaseKeeper(runtime, pools, self._workers)
        look, may_have, workers = self._keeper.look_soon, self._may_have, self._workers
        is_elastic = self._is_elastic
        self._elastic = Elastic(runtime, pools, may_have, look, lambda: free_threads(workers)) if is_elastic else None
        self._spares = Spares(runtime, workers)
        report = HealthReport(runtime, self._workers, os.environ)
        shared_out = {pool for lease, pool in pools.items() if not lease.performer.is_async}
        self._live = LiveSettings(runtime, pools, shared_out, self._beat_soon)
        followers: list[Callable[[list[Lease]], None]] = [self._live.follow, report.follow]
        if self._elastic:
            followers.append(self._elastic.follow)
        self._following = Following(runtime, pools, followers, self._beat_soon)
        balance = self._elastic.balance if self._elastic else lambda _: None
        clockwork = Clockwork(runtime, self._declared)
        house = Housekeeping(runtime, balance, self._following, clockwork.declare_again)
        self._heartbeat = Heartbeat(runtime, lambda round_trip: report(self.state, round_trip), house)
        self._beat = self._heartbeat.beat_soon
        self._remote.connect(self._signals.wake, self._beat_soon)
        runtime.flushes.extend(flushes_of(runtime, self._remote))
        runtime.flushes.append(self._live)
        if self._elastic:
            runtime.flushes.append(self._elastic)
        keeper = self._keeper
        calls = {FOSTER: self._take_over, WANTED: keeper.want, CANCEL: keeper.cancel, PAUSE: keeper.pause}
        calls |= {LETTERS: runtime.letters.note, RECURS: runtime.recurring.note}
        self._burials = Burials(runtime)
        self._chores = Post(runtime, self._burials), clockwork, self._burials
        self._doorbell = Doorbell(runtime, pools, calls, self._beat_soon)
        followers += [self._doorbell.follow, lambda _: keeper.look_soon()]

    def _start_threads(self) -> None:
        with contextlib.suppress(RedisError):  # then with the first beat
            self._live()
            if self._elastic:
                self._elastic()
        self._doorbell.start()
        # Acquiring a shard arms its bell, so somebody should be listening; if not, polling does.
        self._doorbell.is_listening.wait(READY_WITHIN)
        for thread in self._workers:
            if self._is_quiet:
                thread.quiet()
            thread.start()
        self._keeper.start()
        for chore in self._chores:
            chore.start()
        self._heartbeat.start()
        self._keeper.has_tried.wait(READY_WITHIN)

    # ── run ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _loop(self) -> None:
        self._set_state("ready", "started", started(self._node_number, self._number_of_nodes, os.environ))
        logger.info(
            "ready", node=self.name, number=f"{self._node_number} of {self._number_of_nodes}",
            queues=len(self._workers_by_queue), shards=len(self._own()), threads=len(self._workers),
        )  # fmt: skip
        self._signals.call(partial(call_hook, "node_started", self._settings.node_started))
        if self._is_quiet:
            self.quiet("as the others here")
        burst_end = BurstEnd(self._runtime, self._own()) if self._is_burst else None
        while not self._wait(BURST_TICK if burst_end else TICK):
            if burst_end and burst_end.is_reached():
                return
            if self.state == "ready":
                self._spares()

    def _wait(self, timeout: float) -> bool:
        """Waits, acts on signals, and reports to the supervisor. True: the node is to stop."""
        self._take_signals_back()
        for number in self._signals.wait(timeout):
            if number == signal.SIGTSTP:
                self.quiet("told by TSTP")
            elif number == signal.SIGTTIN:
                self.dump()
            elif number == signal.SIGHUP:
                self._leave("retiring")
            else:
                if number == signal.SIGXCPU:
                    logger.warning("cpu_limit_reached", node=self.name)
                # TERM and the first INT drain; QUIT and the second INT abandon.
                self._interrupts += 2 if number == signal.SIGQUIT else int(number == signal.SIGINT)
                self._leave("draining")
        self._remote.act(self)
        self.report()
        if self._fork_server:
            self._fork_server.check()
        return self.state in {"retiring", "draining"} or self._fatal_error is not None

    def _take_signals_back(self) -> None:
        """Takes signals back that a hook, or a library in a job, has taken: without them the node would not drain."""
        for number, whose in self._signals.take_back().items():
            if (number, whose) not in self._takers:
                self._takers.add((number, whose))
                logger.warning(
                    "signal_taken_back", node=self.name, signal=number.name, handler=whose,
                    advice="a node drains by it; what is to be done at its end goes into on_server_stop",
                )  # fmt: skip

    def quiet(self, why: str) -> None:
        """Takes no new jobs. For the main thread, as the next two."""
        self._is_quiet = True
        if self.state == "ready":
            hush(self._workers)
            self._set_state("quiet", "quiet", f"It takes no new jobs: {why}")
            logger.info("quiet", node=self.name, why=why)

    def resume(self, why: str) -> None:
        """Takes jobs again."""
        self._is_quiet = False
        if self.state == "quiet":
            for thread in self._workers:
                thread.resume()
            self._set_state("ready", "resume", f"It takes jobs again: {why}")
            logger.info("resumed", node=self.name, why=why)

    def dump(self) -> str:
        try:
            return dump(self._workers, state_directory(os.environ), self.name)
        except Exception as error:
            logger.exception("dump_failed")
            return f"the dump has failed: {error_text(error)}\n"

    def _take_over(self, lease: Lease) -> None:
        """Takes, when rung for it, a shard that nobody has: its own part always, another node's as its stand-in."""
        if self._may_have() or not lease.is_foster:
            self._keeper.take_over(lease)

    def _own(self) -> list[Lease]:
        return [lease for lease in list(self._pools) if not lease.is_foster]

    def _may_have(self) -> bool:
        return self.state in {"starting", "ready"} and not self._is_quiet

    def _set_state(self, state: str, kind: str = "", says: str = "") -> None:
        """Enters a state; with a kind of incident, it is one."""
        self.state = state
        if kind and self._workers:
            self._runtime.incidents.note(kind, says)
        self.report()
        self._beat_soon()

    def _beat_soon(self) -> None:
        """Has the next beat come at once, if there are any yet."""
        self._beat()

    def report(self, ask: str = "") -> None:
        self._on_state(ask or self.state, *load_of(self._workers))

    def _fatal(self, error: BaseException) -> None:
        """Stops the node, from any thread."""
        self._fatal_error = self._fatal_error or error
        self._signals.wake()

    # ── drain ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _leave(self, state: str) -> None:
        """Notes that the node is to end: one that retires when its jobs have, one that drains by a deadline."""
        if state == "draining":
            timeout = ABANDON if self._interrupts > 1 else self._settings.drain_timeout
            self._leave_at = min(self._leave_at, clock.monotonic() + timeout)
        if self.state not in {state, "draining"}:
            logger.info(state, node=self.name, timeout=self._settings.drain_timeout if state == "draining" else None)
            self._remote.leaving()
            self._set_state(state, *LEAVES[state])

    def _on_interrupt(self, number: int) -> None:
        """Leaves a hook that goes on, whatever is raised in it, when a drain would be over."""
        if self._ends_process:
            is_hurried, is_ready = number == signal.SIGQUIT, self.state != "starting"
            code = ExitCode.ABANDONED if is_hurried else ExitCode.FORCED_KILL if is_ready else ExitCode.DRAINED
            leave_within((self._settings.drain_timeout if is_ready and not is_hurried else ABANDON) + OVERDUE, code)

    def _drain(self) -> int:
        """Finishes what runs, hands the shards over, and says why."""
        if self.state != "retiring":
            self._leave("retiring" if self._is_to_retire else "draining")
        runtime = self._runtime
        drain = Drain(runtime, self._workers, self._keeper, self._elastic.heirs() if self._elastic else {})
        drain.begin()
        self._following.stop()
        while (drain.advance(self._leave_at) or self._burials.is_calling) and clock.monotonic() < self._leave_at:
            self._wait(BURST_TICK)
            if self._fatal_error is not None and not self._is_to_retire:
                self._leave("draining")
        if drain.cut_short():
            until = clock.monotonic() + ABANDON
            while drain.advance(until) and clock.monotonic() < until:
                self._wait(BURST_TICK)
        for chore in self._chores:
            chore.stop()
        chores_until = clock.monotonic() + TICK
        for chore in self._chores:
            chore.join(max(0.0, chores_until - clock.monotonic()))
        return self._end(drain.end())

    def _end(self, left: int) -> int:
        """What comes after the drain, which has left jobs in so many shards. Returns the exit code."""
        code = self._exit_code(left)
        if left:  # it has no time left, nor have those whose jobs were abandoned for it
            self._leave_at = clock.monotonic()
        if self._ends_process:
            leave_within(self.time_left + OVERDUE, code)  # whatever part of the end takes too long
        if self._fatal_error is not None:
            logger.error("stopped_by", error=error_text(self._fatal_error)[:300])
            self._signals.call(partial(say_last_words, self._settings, self._fatal_error))
        self._stop()
        self._heartbeat.stop()
        self._doorbell.stop()
        self._heartbeat.join(TICK)
        telemetry.flush(self._settings.telemetry)
        logger.info("drained", node=self.name, abandoned=left)
        return code

    def _stop(self) -> None:
        """Has the application clean up, in the node and beside it in the helpers, within what is left of the drain."""
        runtime = self._runtime
        if self._fork_server:
            self._fork_server.let_end()
        if hook := self._settings.on_server_stop:
            call = partial(call_hook, "on_server_stop", lambda: runtime.loop.finish(hook()))
            self._signals.call(call, self.time_left)
        runtime.loop.close(self.time_left)
        if self._fork_server:
            self._fork_server.wait_for_end(self.time_left)

    @property
    def time_left(self) -> float:
        """Seconds of the drain that are left, some at least: for the end of the process."""
        if self.state == "starting":
            return ending.USUAL
        return max(ending.LEAST, min(self._leave_at - clock.monotonic(), self._settings.drain_timeout))

    def _exit_code(self, left: int) -> int:
        """What the process ends with, which has left jobs in so many shards."""
        if self._fatal_error is not None and self._interrupts <= 1:
            is_recycled = isinstance(self._fatal_error, ThreadsStuck) or (self._is_to_retire and not left)
            return ExitCode.RECYCLED if is_recycled else ExitCode.INTERNAL
        return ExitCode.ABANDONED if self._interrupts > 1 else ExitCode.FORCED_KILL if left else ExitCode.DRAINED

    @property
    def _is_to_retire(self) -> bool:
        """True if what stops the node is no fault of a job that still runs."""
        return isinstance(self._fatal_error, ForkServerDied)
