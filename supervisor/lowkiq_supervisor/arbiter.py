"""
The arbiter: one thread, one selector, one loop that spawns, reaps, restarts, drains and kills.

Responsible for what happens to processes and when. It has no Redis client and runs no user code, so nothing a job
does can keep it from its work. Every wait has a monotonic deadline.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import structlog

from lowkiq_supervisor.child import Child, spawn
from lowkiq_supervisor.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.exit_codes import ExitCode, describe_exit
from lowkiq_supervisor.node import NodeSpec, RunNode, begin, run_node
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.redis_slot import LOOK_INTERVAL, has_become_ready, redis_slot
from lowkiq_supervisor.restart_policy import Action, RestartHistory, RestartMode, RestartPolicy
from lowkiq_supervisor.shutdown import Shutdown
from lowkiq_supervisor.signals import SignalInbox
from lowkiq_supervisor.slot import BEATEN, Slot, State
from lowkiq_supervisor.watch import Watch

log = structlog.stdlib.get_logger("supervisor")


class Arbiter:
    """Keeps the nodes of one machine running until it is told to stop, or nothing is left to run."""

    def __init__(
        self,
        options: Options,
        *,
        run_child: RunNode = run_node,
        embedded: EmbeddedRedis | None = None,
        policy: RestartPolicy | None = None,
    ) -> None:
        self._options = options
        self._run_child = run_child
        self._embedded = embedded
        self._policy = policy or RestartPolicy(mode=options.restart, burst=options.burst)
        numbers = range(options.first_node, options.first_node + options.nodes)
        self._nodes = [self._node_slot(number) for number in numbers]
        self._redis = redis_slot(embedded, self._policy, self._close_foreign) if embedded else None
        self._environment = options.node_environment() | (embedded.environment() if embedded else {})
        self._signals = SignalInbox()
        self._watch = Watch()
        self._shutdown = Shutdown(self._nodes, self._redis, drain_timeout=options.drain_timeout)
        self._quiet = False
        self._interrupts = 0

    def _node_slot(self, number: int) -> Slot:
        return Slot(
            title=f"node {number}/{self._options.number_of_nodes}",
            history=RestartHistory(self._policy),
            launch=partial(self._launch_node, number=number),
        )

    def run(self) -> int:
        """Supervise until everything has ended; returns the exit code."""
        with self._signals:
            try:
                code = self._supervise()
            except BootError as error:
                log.error("can't start", error=str(error))
                code = ExitCode.BOOT
            except Exception:
                log.exception("supervisor failed, killing every process")
                code = ExitCode.INTERNAL
            finally:
                self._end_everything()
        log.info("stopped", exit_code=int(code), meaning=code.name.lower())
        return code

    def _supervise(self) -> ExitCode:
        self._watch.add(self._signals, self._signals.empty_socket)
        self._boot()
        while not self._finished():
            self._turn()
        return self._shutdown.exit_code

    # The loop ------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        """Redis first, if it is ours; the nodes when it answers."""
        if self._embedded is not None and self._redis is not None:
            self._embedded.prepare()
            self._redis.schedule(time.monotonic())
        else:
            self._release_nodes()

    def _turn(self) -> None:
        self._watch.wait(self._patience())
        for signum in self._signals.take():
            self._on_signal(signum)
        self._look_at_redis()
        self._start_what_is_due()
        self._shutdown.kill_what_is_overdue()
        self._shutdown.stop_redis_when_alone()

    def _patience(self) -> float | None:
        """Seconds until something is due."""
        times = [at for slot in self._slots() for at in slot.deadlines()]
        if self._redis is not None and self._redis.state is State.STARTING:
            times.append(time.monotonic() + LOOK_INTERVAL)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _finished(self) -> bool:
        return all(slot.state is State.EXITED for slot in self._slots())

    def _on_signal(self, signum: signal.Signals) -> None:
        match signum:
            case signal.SIGTERM:
                self._shutdown.drain("TERM")
            case signal.SIGINT:
                self._interrupts += 1
                if self._interrupts == 1:
                    self._shutdown.drain("INT")
                else:
                    self._shutdown.abandon("second INT")
            case signal.SIGQUIT:
                self._shutdown.abandon("QUIT")
            case signal.SIGTSTP:
                self._quieten()
            case signal.SIGCHLD:
                self._reap_unwatched()

    def _quieten(self) -> None:
        """Take no new jobs, go on with the running ones; also the nodes that become ready later."""
        self._quiet = True
        log.info("quiet")
        for slot in self._nodes:
            if slot.child is not None and slot.child.booted:
                slot.child.send(signal.SIGTSTP)

    # Starting ------------------------------------------------------------------------------------------------------

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots():
            if slot.start_at is not None and slot.start_at <= now:
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        slot.start_at = None
        try:
            child = slot.launch(slot)
        except OSError as error:  # no process or descriptor to be had: as good as a crash
            log.error("can't fork", slot=slot.title, error=str(error))
            self._decide(slot, ExitCode.INTERNAL)
            return
        slot.filled(child)
        self._watch.add(child.beats, partial(self._read_beats, slot, child))
        if child.pidfd is not None:
            self._watch.add(child.pidfd, partial(self._reap, slot, child))
        log.info("started", slot=slot.title, pid=child.pid)

    def _launch_node(self, slot: Slot, number: int) -> Child:
        spec = NodeSpec.of(self._options, number, tuple(slot.past_names), self._environment)
        child = spawn(lambda beat: self._run_child(spec, begin(spec, beat)), close_foreign=self._close_in_node)
        child.name = spec.name(child.pid)
        return child

    def _release_nodes(self) -> None:
        now = time.monotonic()
        for slot in self._nodes:
            if slot.state is State.WAITING:
                slot.schedule(now)

    def _look_at_redis(self) -> None:
        if self._redis is not None and self._embedded is not None and has_become_ready(self._redis, self._embedded):
            self._became_ready(self._redis)

    # What children tell --------------------------------------------------------------------------------------------

    def _read_beats(self, slot: Slot, child: Child) -> None:
        if slot.child is not child:  # reaped earlier in this turn
            return
        for word in child.beats.read():
            state = BEATEN.get(word)
            if state is not None and slot.says(state):
                self._became_ready(slot)
        if child.beats.ended:
            self._watch.drop(child.beats)

    def _became_ready(self, slot: Slot) -> None:
        log.info("ready", slot=slot.title)
        if slot is self._redis:
            self._release_nodes()
        elif self._quiet and slot.child is not None:
            slot.child.send(signal.SIGTSTP)  # it came to quiet company

    # Ends ----------------------------------------------------------------------------------------------------------

    def _reap_unwatched(self) -> None:
        """Where there are no pidfds, SIGCHLD says that somebody has ended, not who."""
        for slot in self._slots():
            if slot.child is not None and slot.child.pidfd is None:
                self._reap(slot, slot.child)

    def _reap(self, slot: Slot, child: Child) -> None:
        if slot.child is not child:
            return
        code = child.reap()
        if code is None:
            return
        self._read_beats(slot, child)  # it may have become ready and ended since the last look
        self._forget(child)
        slot.emptied()
        if slot.leaving:
            slot.exit()
            self._shutdown.ended(code)
            log.info("ended", slot=slot.title, pid=child.pid, reason=describe_exit(code))
        else:
            self._decide(slot, code, child.pid)

    def _decide(self, slot: Slot, code: int, pid: int | None = None) -> None:
        """A slot is empty that nobody told to be: fill it again, or not."""
        verdict = slot.history.ended(code)
        facts = {"slot": slot.title, "pid": pid, "reason": describe_exit(code)}
        match verdict.action:
            case Action.FINISH:
                slot.ever_ready = True
                slot.exit()
                log.info("finished", **facts)
                return
            case Action.REPLACE:
                slot.schedule(time.monotonic())
                log.info("recycled", **facts)
                return
            case Action.RESTART:
                slot.schedule(time.monotonic() + verdict.delay)
                log.warning("died, will be restarted", **facts, restart_in=round(verdict.delay, 2))
            case Action.GIVE_UP:
                slot.exit(given_up=True)
                log.error("died, won't be restarted", **facts)
        slot.failures += 1
        self._react_to_failure(slot)

    def _react_to_failure(self, slot: Slot) -> None:
        is_redis = slot is self._redis
        if is_redis and self._embedded is not None:
            log.error("redis failed", last_lines=self._embedded.last_lines())
        if all(other.failures and not other.ever_ready for other in ([slot] if is_redis else self._nodes)):
            self._shutdown.drain(f"{'redis' if is_redis else 'every node'} failed at its first boot", ExitCode.BOOT)
        elif slot.given_up and (is_redis or self._policy.mode is not RestartMode.NEVER):
            log.error("crash loop", slot=slot.title, failures=slot.failures)
            if is_redis or not self._options.degraded:
                self._shutdown.drain(f"crash loop of {slot.title}", ExitCode.CRASH_LOOP)

    def _end_everything(self) -> None:
        """Nothing outlives the supervisor: in the normal case, nothing is left to kill here."""
        for slot in self._slots():
            if slot.child is not None:
                slot.child.kill()
                os.waitpid(slot.child.pid, 0)
                self._forget(slot.child)
                slot.emptied()
        if self._embedded is not None:
            self._embedded.close()
        self._watch.close()

    # Descriptors ---------------------------------------------------------------------------------------------------

    def _slots(self) -> list[Slot]:
        return [*self._nodes, *([self._redis] if self._redis else [])]

    def _forget(self, child: Child) -> None:
        self._watch.drop(child.beats)
        if child.pidfd is not None:
            self._watch.drop(child.pidfd)
        child.close()

    def _close_foreign(self) -> None:
        """In a child: close what is the supervisor's or another child's."""
        self._watch.close()
        self._signals.close()
        for slot in self._slots():
            if slot.child is not None:
                slot.child.close()

    def _close_in_node(self) -> None:
        self._close_foreign()
        if self._embedded is not None:
            self._embedded.close()
