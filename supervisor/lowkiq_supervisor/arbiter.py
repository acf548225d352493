"""
The arbiter: one thread, one selector, one loop that spawns, reaps, restarts, drains and kills.

Responsible for what happens when: it connects the parts, and gives each its turn. It has no Redis client and runs no
user code, so nothing a job does can keep it from its work. Every wait has a monotonic deadline.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import MutableMapping

import structlog
from setproctitle import setproctitle

from lowkiq.environment import ExitCode
from lowkiq_supervisor.control.server import Control
from lowkiq_supervisor.control.status import Report
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.loop import Watch
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.commands import Orders
from lowkiq_supervisor.policy.hang import HangWatch
from lowkiq_supervisor.policy.on_exit import Succession
from lowkiq_supervisor.policy.recycling import Recycling
from lowkiq_supervisor.policy.rolling_restart import Turnover
from lowkiq_supervisor.policy.shutdown import DRAIN_GRACE, Shutdown
from lowkiq_supervisor.processes import orphans
from lowkiq_supervisor.processes.child import Child, spawn
from lowkiq_supervisor.processes.children import Crew
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.node import NodeSpec, RunNode, begin, run_node
from lowkiq_supervisor.processes.redis import LOOK_INTERVAL, has_become_ready, redis_slot
from lowkiq_supervisor.processes.slot import Slot, State
from lowkiq_supervisor.processes.slots import Fleet
from lowkiq_supervisor.processes.web import RunWeb, WebSpec, run_web, web_slot
from lowkiq_supervisor.restart_policy import RestartHistory, RestartPolicy
from lowkiq_supervisor.signals import SignalInbox
from lowkiq_supervisor.state_dir import StateDir
from lowkiq_supervisor.systemd import ServiceManager

log = structlog.stdlib.get_logger("supervisor")


class Arbiter:
    """
    Keeps the nodes of one machine running until it is told to stop, or nothing is left to run.

    Args:
        run_child: the body of a node's process.
        run_web: the body of the web view's.
        environ: where the service manager's variables are, which are taken out of it.
    """

    def __init__(
        self,
        options: Options,
        *,
        run_child: RunNode = run_node,
        run_web: RunWeb = run_web,
        embedded: EmbeddedRedis | None = None,
        policy: RestartPolicy | None = None,
        environ: MutableMapping[str, str] = os.environ,
    ) -> None:
        self._options = options
        self._run_child = run_child
        self._embedded = embedded
        self._environment = {"LOWKIQ_SUPERVISOR_PID": str(os.getpid()), **options.node_environment()}
        if embedded is not None:
            self._environment |= embedded.environment()
        self._fleet = self._build_fleet(policy or RestartPolicy(mode=options.restart, burst=options.burst), run_web)
        self._signals = SignalInbox()
        self._watch = Watch()
        self._manager = ServiceManager.from_environment(environ)
        self._shutdown = Shutdown(self._fleet, drain_timeout=options.drain_timeout)
        self._turnover = Turnover(self._manager.reloading)
        self._hang = HangWatch(options.hang_timeout, options.boot_timeout)
        self._recycling = Recycling(options)
        self._report = Report(options=options, fleet=self._fleet, shutdown=self._shutdown, turnover=self._turnover)
        self._orders = Orders(options, self._fleet, self._shutdown, self._turnover, self._report)
        self._succession = Succession(options, self._fleet, embedded, self._shutdown, self._turnover)
        self._crew = Crew(self._fleet.all, self._watch, self)
        self._state_dir = StateDir(options.state_dir)
        self._control = Control(self._state_dir.control_socket, self._watch, self._orders.answer)
        self._said_to_stop = False
        self._title = ""

    def _build_fleet(self, policy: RestartPolicy, run_web: RunWeb) -> Fleet:
        options, embedded = self._options, self._embedded
        nodes = [self._node_slot(index, policy) for index in range(options.nodes)]
        web = redis = None
        if options.web is not None:
            spec = WebSpec(options=options, environment=self._environment)
            web = web_slot(spec, run_web, policy, self._close_in_client)
        if embedded is not None:
            redis = redis_slot(embedded, policy, self._close_foreign)
        return Fleet(nodes=nodes, web=web, redis=redis)

    def _node_slot(self, index: int, policy: RestartPolicy) -> Slot:
        number = self._options.first_node + index
        return Slot(
            title=f"node {number}/{self._options.number_of_nodes}",
            index=index,
            number=number,
            history=RestartHistory(policy),
            launch=self._launch_node,
            grace=self._options.drain_timeout + DRAIN_GRACE,
        )

    def run(self) -> int:
        """Supervise until everything has ended; returns the exit code."""
        code = ExitCode.INTERNAL
        with self._signals:
            try:
                code = self._supervise()
            except BootError as error:
                log.error("can't start", error=str(error))
                code = ExitCode.BOOT
            except Exception:
                log.exception("supervisor failed, killing every process")
            finally:
                self._end_everything(code)
        log.info("stopped", exit_code=int(code), meaning=code.name.lower())
        return code

    def _supervise(self) -> ExitCode:
        self._watch.add(self._signals, self._signals.empty_socket)
        self._boot()
        while not all(slot.state is State.EXITED for slot in self._fleet.all):
            self._turn()
        return self._shutdown.exit_code

    # The loop ------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        """Redis first, if it is ours; the others when it answers."""
        if self._embedded is not None:
            self._embedded.prepare()
        self._state_dir.claim()
        self._control.open()
        orphans.adopt()
        if self._fleet.redis is not None:
            self._fleet.redis.schedule(time.monotonic())
        else:
            self._release_clients()

    def _turn(self) -> None:
        self._watch.wait(self._patience())
        for signum in self._signals.take():
            if signum == signal.SIGCHLD:
                self._crew.reap_ended()
            else:
                self._orders.hear(signum)
        self._look_at_redis()
        self._renew_nodes()
        self._start_what_is_due()
        self._hang.look(self._fleet.clients)
        self._shutdown.kill_what_is_overdue()
        self._shutdown.end_companions()
        self._control.drop_overdue()
        self._show()

    def _patience(self) -> float | None:
        """Seconds until something is due."""
        times = [at for slot in self._fleet.all for at in slot.deadlines()]
        times += self._hang.deadlines(self._fleet.clients)
        times += self._control.deadlines()
        times += self._manager.deadlines()
        if self._turnover.idle and not self._shutdown.draining:
            times += self._recycling.deadlines(self._fleet.nodes)
        if self._fleet.redis is not None and self._fleet.redis.state is State.STARTING:
            times.append(time.monotonic() + LOOK_INTERVAL)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _renew_nodes(self) -> None:
        if self._shutdown.draining:
            if not self._said_to_stop:
                self._said_to_stop = True
                self._turnover.cancel()
                self._manager.stopping(self._shutdown.longest)
            return
        if self._turnover.idle and (over := self._recycling.due(self._fleet.nodes)):
            self._turnover.recycle(*over)
        self._turnover.advance()

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for slot in self._fleet.all:
            if slot.start_at is not None and slot.start_at <= now:
                self._crew.start(slot)

    def _release_clients(self) -> None:
        for slot in self._fleet.clients:
            if slot.state is State.WAITING:
                slot.schedule(time.monotonic())

    def _look_at_redis(self) -> None:
        redis = self._fleet.redis
        if redis is not None and self._embedded is not None and has_become_ready(redis, self._embedded):
            self.became_ready(redis)

    def _show(self) -> None:
        """Say in the process's title and to the service manager how things are, where it has changed."""
        line = self._report.line()
        if line != self._title:
            self._title = line
            setproctitle(self._report.title())
            self._manager.status(line)
            if self._report.was_ready:
                self._manager.ready()
        nobody_is_silent = all(slot.child is None or slot.child.silent_at is None for slot in self._fleet.nodes)
        # A drain has its own deadline, within which a silent node is killed anyway.
        self._manager.watchdog(nobody_is_silent or self._shutdown.draining)

    # What the crew reports -----------------------------------------------------------------------------------------

    def became_ready(self, slot: Slot) -> None:
        """A process has got through its boot."""
        log.info("ready", slot=slot.title)
        if slot is self._fleet.redis:
            self._release_clients()
            return
        if slot is not self._fleet.web:
            self._orders.welcome(slot)
        self._turnover.became_ready(slot)

    def ended(self, slot: Slot, code: int, child: Child | None) -> None:
        """A process has ended."""
        self._succession.ended(slot, code, child)

    # Children ------------------------------------------------------------------------------------------------------

    def _launch_node(self, slot: Slot) -> Child:
        environment = self._environment | {
            "LOWKIQ_SLOT": str(slot.index),
            "LOWKIQ_RESTARTS": str(slot.starts),
            "LOWKIQ_LAST_EXIT": slot.last_exit,
        }
        quiet = self._report.quiet
        spec = NodeSpec.of(self._options, slot.number or 0, tuple(slot.past_names), environment, quiet=quiet)
        close = self._close_in_client
        child = spawn(lambda beat: self._run_child(spec, begin(spec.title, environment, beat)), close_foreign=close)
        child.name = spec.name(child.pid)
        return child

    def _close_foreign(self) -> None:
        """In a child: close what is the supervisor's or another child's."""
        for part in (self._watch, self._signals, self._crew, self._control, self._state_dir, self._manager):
            part.close()

    def _close_in_client(self) -> None:
        """Redis itself keeps its lock."""
        self._close_foreign()
        if self._embedded is not None:
            self._embedded.close()

    def _end_everything(self, code: ExitCode) -> None:
        self._crew.end_all()
        if self._embedded is not None:
            self._embedded.close()
        self._control.end({"ok": True, "exit_code": int(code), "meaning": code.name.lower()})
        for part in (self._state_dir, self._manager, self._watch):
            part.close()
