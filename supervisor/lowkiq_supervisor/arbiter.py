"""
The arbiter: one thread, one selector, one loop that spawns, reaps, restarts, drains and kills.

Responsible for what happens when: it connects the parts, and gives each its turn. It has no Redis client and runs no
user code, so nothing a job does can keep it from its work. Every wait has a monotonic deadline.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, MutableMapping
from functools import partial

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq.process.held_signals import release
from lowkiq.process.parent import adopt_orphans
from lowkiq.process.signals import SignalInbox, disarm
from lowkiq.process.title import set_title
from lowkiq.shared_page import DeadNode
from lowkiq_supervisor.control.commands import Commands
from lowkiq_supervisor.control.places import Places
from lowkiq_supervisor.control.server import Control
from lowkiq_supervisor.control.status import Report
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.events import Events
from lowkiq_supervisor.loop import Loop
from lowkiq_supervisor.names import KeptName, NamesFile
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.last_resort import LastResort
from lowkiq_supervisor.policy.limits import HangLimits, RecyclingLimits
from lowkiq_supervisor.policy.notices import Notices
from lowkiq_supervisor.policy.on_exit import OnExit
from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.policy.scale import Scale
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.bulletins import Bulletins
from lowkiq_supervisor.processes.children import Children
from lowkiq_supervisor.processes.embedded_redis import LOOK_INTERVAL, EmbeddedRedis, has_become_ready, redis_slot
from lowkiq_supervisor.processes.end_hook import EndHooks, run_end_hook
from lowkiq_supervisor.processes.guardian import Guardian
from lowkiq_supervisor.processes.node import RunNode, node_slot, run_node
from lowkiq_supervisor.processes.slots import Slot, Slots, State
from lowkiq_supervisor.processes.watcher import Watcher
from lowkiq_supervisor.processes.web import RunWeb, run_web, web_slot
from lowkiq_supervisor.restart_policy import RestartPolicy
from lowkiq_supervisor.state_dir import StateDir
from lowkiq_supervisor.systemd import ServiceManager

#: The signals it acts on. CHLD is among them where a process can't be watched by a descriptor, and because a parent may
#: have left it ignored, which would make the kernel forget how children ended.
HANDLED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGUSR1,
    signal.SIGUSR2, signal.SIGXCPU, signal.SIGCHLD,
)  # fmt: skip

log = get_logger("supervisor")


class Arbiter:
    """
    Keeps the nodes of one machine running until it is stopped, or nothing is left to run.

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
        self._embedded = embedded
        policy = policy or RestartPolicy(mode=options.restart, burst=options.burst, strict=options.strict)
        self._environment = {"LOWKIQ_SUPERVISOR_PID": str(os.getpid()), **options.node_environment()}
        if embedded is not None:
            self._environment |= embedded.environment
        self._bulletins = Bulletins()
        self._slots = Slots()
        self._signals = SignalInbox(HANDLED, ends_process=True)
        make_node = self._fill_slots(options, policy, run_child, run_web)
        self._loop = Loop()
        self._manager = ServiceManager.from_environment(environ)
        self._shutdown = Shutdown(self._slots, drain_timeout=options.drain_timeout)
        self._replacement = Replacement(self._slots, 0.0 if options.reload else options.soak, self._manager.reloading)
        self._scale = Scale(options, self._slots, self._shutdown, self._replacement, make_node)
        self._last_resort = LastResort(self._slots, self._shutdown, embedded, options.strict)
        self._hangs = HangLimits(options.hang_timeout, options.boot_timeout)
        self._recycling = RecyclingLimits(options)
        self._events = Events()
        parts = (options, self._slots, self._shutdown, self._replacement, self._scale)
        self._report = Report(*parts, self._events)
        self._commands = Commands(*parts, self._report)
        self._notices = Notices(self._slots, self._replacement)
        end_hooks = EndHooks(self._slots, options.app, self._environment, run_end_hook, self._close_in_client)
        on_exit = OnExit(
            self._slots, self._shutdown, self._replacement, self._last_resort, self._notices, self._bulletins, end_hooks
        )
        self._children = Children(
            self._slots,
            self._loop,
            on_ready=self._on_ready,
            on_exit=on_exit,
            on_ask=self._commands.on_ask,
            on_no_fork=on_exit.no_fork,
        )
        self._state_dir = StateDir(options.state_dir)
        self._names = NamesFile(options.state_dir)
        self._control = Control(self._state_dir.control_socket, self._loop, self._commands.on_request)
        self._guardian = Guardian(self._close_foreign)
        self._watcher = Watcher(self._loop, self._commands.on_change, self._close_in_client)
        self._is_reloading = options.reload
        self._places = Places(self._state_dir, self._control, self._commands.terminal)
        self._said_to_stop = False
        self._title = ""

    def _fill_slots(
        self, options: Options, policy: RestartPolicy, run_child: RunNode, run_web: RunWeb
    ) -> Callable[[int], Slot]:
        """Returns what makes the slot of one node more."""
        environment, slots, close = self._environment, self._slots, self._close_in_client
        make = partial(node_slot, options, run_child, policy, environment, slots, self._bulletins, close, self._signals)
        slots.nodes += map(make, range(options.nodes))
        if options.web is not None:
            slots.web = web_slot(options, run_web, policy, environment, close)
        if self._embedded is not None:
            slots.redis = redis_slot(self._embedded, policy, self._close_foreign)
        return make

    def run(self) -> int:
        """Supervise until everything has ended; returns the exit code."""
        code = ExitCode.INTERNAL
        with self._signals:
            disarm()
            release()
            try:
                code = self._supervise()
            except BootError as error:
                log.error("cannot_start", error=str(error))
                code = ExitCode.BOOT
            except Exception:
                log.exception("supervisor_failed", hint="every process is killed")
            finally:
                self._end_everything(code)
        log.info("stopped", exit_code=int(code), meaning=code.name.lower())
        return code

    def _supervise(self) -> ExitCode:
        self._events.watch()
        self._loop.add(self._signals, self._act_on_signals)
        self._boot()
        while not all(slot.state is State.EXITED for slot in self._slots.all):
            self._turn()
        return self._shutdown.exit_code

    # The loop ------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        """Redis first, if it is ours; the others when it answers."""
        if self._embedded is not None:
            self._embedded.prepare()
        self._state_dir.claim()
        self._control.open()
        adopt_orphans()
        if self._is_reloading:
            self._watcher.start()
        for name in self._names.read_dead():
            self._bulletins.died(DeadNode(name))
        if self._slots.redis is not None:
            self._slots.redis.schedule(time.monotonic())
        else:
            self._release_clients()

    def _turn(self) -> None:
        self._loop.wait(self._seconds_to_wait())
        for number, whose in self._signals.take_back().items():  # before_fork may have taken them
            log.warning("signal_taken_back", signal=number.name, handler=whose)
        redis = self._slots.redis
        if redis is not None and self._embedded is not None and has_become_ready(redis, self._embedded):
            self._on_ready(redis)
        self._last_resort.look()
        self._replace()
        self._scale.advance()
        self._start_what_is_due()
        self._hangs.enforce(self._slots.beating)
        self._shutdown.kill_what_is_overdue()
        self._shutdown.end_companions()
        self._control.drop_overdue()
        self._bulletins.notices = self._notices.now()
        self._bulletins.events, self._bulletins.answers = self._events.incidents, self._commands.answers()
        self._bulletins.nodes = sum(not slot.joins for slot in self._slots.nodes)
        self._bulletins.publish(self._slots.of_nodes)
        self._names.write(self._kept_names())
        self._guardian.tell(slot.child.pid for slot in self._slots.beating if slot.child is not None)
        self._places.keep()
        self._show()

    def _act_on_signals(self) -> None:
        for signum in self._signals.take():
            if signum == signal.SIGCHLD:
                self._children.reap_ended()
            else:
                self._commands.on_signal(signum)

    def _seconds_to_wait(self) -> float | None:
        """Seconds until something is due."""
        times = [at for slot in self._slots.all for at in (slot.start_at, slot.kill_at) if at is not None]
        times += self._hangs.deadlines(self._slots.beating)
        for part in (self._replacement, self._scale, self._control, self._manager, self._places):
            times += part.deadlines()
        if not self._shutdown.draining and (begin := self._replacement.recycle_from()) is not None:
            times += [max(begin, at) for at in self._recycling.deadlines(self._slots.nodes)]
        if self._slots.redis is not None and self._slots.redis.state is State.STARTING:
            times.append(time.monotonic() + LOOK_INTERVAL)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _replace(self) -> None:
        if self._shutdown.draining:
            if not self._said_to_stop:
                self._said_to_stop = True
                self._replacement.cancel()
                self._manager.stopping(self._shutdown.longest)
            return
        begin = self._replacement.recycle_from()
        if begin is not None and begin <= time.monotonic() and (over := self._recycling.due(self._slots.nodes)):
            self._replacement.recycle(*over)
        self._replacement.advance()

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots.all:
            if slot.start_at is not None and slot.start_at <= now:
                self._children.start(slot)

    def _kept_names(self) -> list[KeptName]:
        """The nodes that the next supervisor should know of: those that live, and recent deaths."""
        children = [slot.child for slot in self._slots.of_nodes if slot.child is not None]
        dead = [KeptName(dead.name) for dead in self._bulletins.recent]
        return [*(KeptName(child.name, child.birth) for child in children if child.name), *dead]

    def _release_clients(self) -> None:
        for slot in self._slots.clients:
            if slot.state is State.WAITING:
                slot.schedule(time.monotonic())

    def _on_ready(self, slot: Slot) -> None:
        """A process has got through its boot."""
        log.info("ready", slot=slot.title)
        if slot is self._slots.redis:
            self._release_clients()
            return
        if slot is not self._slots.web and self._slots.quiet and slot.child is not None:
            slot.child.send(signal.SIGTSTP)  # the others became quiet after its fork
        self._replacement.became_ready(slot)

    def _show(self) -> None:
        """Say in the process's title and to the service manager how things are, where it has changed."""
        line = self._report.line()
        if line != self._title:
            self._title = line
            set_title(self._report.title())
            self._manager.status(line)
            if self._report.was_ready:
                self._manager.ready()
        all_beat = all(slot.child is None or slot.child.silent_at is None for slot in self._slots.nodes)
        # A drain has its own deadline, within which a silent node is killed anyway.
        self._manager.watchdog(all_beat or self._shutdown.draining, any(slot.works for slot in self._slots.nodes))

    # The end -------------------------------------------------------------------------------------------------------

    def _close_foreign(self) -> None:
        """In a child: close what is the supervisor's or another child's."""
        for part in (self._loop, self._signals, self._children, self._guardian, self._watcher):
            part.close()
        for place in (self._control, self._state_dir, self._manager):
            place.close()

    def _close_in_client(self) -> None:
        """Redis itself keeps its lock."""
        self._close_foreign()
        if self._embedded is not None:
            self._embedded.close()

    def _end_everything(self, code: ExitCode) -> None:
        self._children.end_all()
        self._guardian.end()
        self._watcher.end()
        if self._embedded is not None:
            self._embedded.close()
        self._control.end({"ok": True, "exit_code": int(code), "meaning": code.name.lower()})
        for part in (self._state_dir, self._manager, self._loop):
            part.close()
