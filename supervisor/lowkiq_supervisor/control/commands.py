"""Commands of people and service managers, by signals or through the control socket: two ways to say the same."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any

from lowkiq.log import get_logger
from lowkiq.shared_page import Answer
from lowkiq_supervisor.control.status import HEALTHY, Report
from lowkiq_supervisor.errors import CommandRefused
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.policy.roll import Roll
from lowkiq_supervisor.policy.scale import Scale
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.terminal import Terminal

#: Requests of nodes whose answers are kept.
MOST_ASKS = 20

log = get_logger("supervisor")


@dataclass(slots=True)
class Commands:
    """Carries out each command at once; none of them waits for its effect."""

    options: Options
    slots: Slots
    shutdown: Shutdown
    replacement: Replacement
    scale: Scale
    report: Report
    terminal: Terminal = field(default_factory=Terminal)
    #: What nodes have asked for: the id of a request → the slot, and the roll that does it or why none does.
    _asks: dict[str, tuple[Slot, int | str]] = field(default_factory=dict)
    _interrupts: int = 0

    def on_signal(self, signum: int) -> None:
        match signum:
            case signal.SIGTERM | signal.SIGXCPU:
                self.shutdown.drain("TERM" if signum == signal.SIGTERM else "XCPU: the soft limit of CPU time")
            case signal.SIGINT:
                self._interrupts += 1
                if self._interrupts == 1:
                    self.shutdown.drain("INT")
                else:
                    self.shutdown.abandon("second INT")
            case signal.SIGQUIT:
                self.shutdown.abandon("QUIT")
            case signal.SIGHUP:
                self._hang_up()
            case signal.SIGTSTP:
                self._quieten()
            case signal.SIGTTIN:
                self._dump()
            case signal.SIGUSR1:
                log.info("log_goes_on", hint="a --log-file that was moved away is made again by itself")
            case signal.SIGUSR2:
                status = self.report.as_json()
                parts = {name: status[name] for name in ("nodes", "redis", "web")}
                log.info("status", state=status["supervisor"]["state"], **parts)

    def on_change(self, files: list[str]) -> None:
        """Python files have changed, and --reload wants that to be seen."""
        if not self.shutdown.draining:
            log.info("files_changed", files=files)
            self._roll(self._chosen(None), f"changed: {', '.join(files)}")

    def on_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Act on a request through the control socket. None: the answer comes when everything has ended."""
        answer: dict[str, Any] | None
        match request.get("command"):
            case "status":
                answer = {"ok": True, **self.report.as_json()}
            case "ping":
                state = self.report.overall()
                answer = {"ok": True, "state": state.value, "healthy": state in HEALTHY}
            case "dump":
                answer = {"ok": True, "pids": self._dump(), "directory": str(self.options.state_dir)}
            case "quiet":
                self._quieten()
                answer = {"ok": True, "nodes": len(self.slots.nodes)}
            case "restart":
                answer = self._restart(request)
            case "scale":
                answer = self.scale.ask(request.get("nodes"))
            case "stop":
                self.shutdown.drain("asked to stop")
                answer = None
            case other:
                raise CommandRefused(
                    f"unknown command {other!r}: status, ping, dump, quiet, restart, scale and stop are known"
                )
        return answer

    def on_ask(self, slot: Slot, id: str) -> None:
        """A node asks to be replaced, as somebody wants it who is elsewhere: the same as `restart` with its slot."""
        log.info("asked_from_afar", slot=slot.title, request=id)
        while len(self._asks) >= MOST_ASKS:
            del self._asks[next(iter(self._asks))]
        if slot not in self.slots.nodes:
            self._asks[id] = slot, "it is replaced already, or goes"
            return
        try:
            self._asks[id] = slot, self._restart({"slot": slot.index})["roll"]
        except CommandRefused as error:
            self._asks[id] = slot, str(error)

    def answers(self) -> tuple[Answer, ...]:
        """The answers to what nodes have asked for, as things are now."""
        return tuple(self._answer(id, *row) for id, row in self._asks.items())

    def _answer(self, id: str, slot: Slot, roll: int | str) -> Answer:
        if isinstance(roll, str):
            return Answer(id, "refused", roll)
        last = self.replacement.roll
        if last is not None and last.number == roll and last.stopped and slot in last.left:
            return Answer(id, "refused", f"it stays: {last.stopped}")
        return Answer(id, "doing", "its successor is being started; until that is ready it goes on")

    def _restart(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.shutdown.draining:
            raise CommandRefused("the supervisor is draining: nothing is restarted")
        if request.get("resume"):
            roll = self.replacement.resume()
            if roll is None:
                raise CommandRefused("no rolling restart has stopped: there is nothing to resume")
            slots = list(roll.left)
        else:
            slots = self._chosen(request.get("slot"))
            roll = self._roll(slots, "asked to restart")
        numbers = [slot.index for slot in slots if slot.index is not None]
        web = self.slots.web in slots
        return {
            "ok": True,
            "slots": numbers,
            "web": web,
            "preloaded": self.options.preload,
            "roll": roll.number,
            "moved": self.options.links.moved(),
        }

    def _chosen(self, index: object) -> list[Slot]:
        if index is None:
            return [slot for slot in self.slots.clients if not slot.is_over]
        chosen = [slot for slot in self.slots.nodes if type(index) is int and slot.index == index]
        if not chosen:
            raise CommandRefused(f"no slot {index}: there are 0 to {len(self.slots.nodes) - 1}")
        if chosen[0].is_over:
            raise CommandRefused(f"slot {index} has ended ({chosen[0].last_exit}), and is not started again: --restart")
        return chosen

    def _roll(self, slots: list[Slot], why: str) -> Roll:
        if self.options.preload:
            log.warning("restarting_preloaded_code", hint="to change it, restart the supervisor")
        elif moved := self.options.links.moved():
            log.warning("restarting_old_code", hint=moved)
        return self.replacement.roll_over(slots, why)

    def _hang_up(self) -> None:
        """A terminal that ends says so by HUP, too: whoever started this there doesn't want it renewed."""
        if self.shutdown.draining:
            return
        if not self.terminal.has_hung_up():
            self._roll(self.slots.clients, "HUP")
        elif self.terminal.is_outlived:
            log.info("terminal_ended", hint="started by nohup: goes on without it")
        else:
            self.shutdown.drain("HUP: the terminal has ended")

    def _quieten(self) -> None:
        """Take no new jobs, go on with the running ones; also the nodes that become ready later."""
        self.slots.quiet = True
        log.info("quiet")
        self._signal_booted(signal.SIGTSTP)

    def _dump(self) -> list[int]:
        """Every node writes what its threads do; one without its handlers yet has no jobs either."""
        pids = self._signal_booted(signal.SIGTTIN)
        log.info("dump", pids=pids, supervisor=os.getpid(), directory=str(self.options.state_dir))
        return pids

    def _signal_booted(self, signum: signal.Signals) -> list[int]:
        booted = [slot.child for slot in self.slots.of_nodes if slot.child is not None and slot.child.booted]
        for child in booted:
            child.send(signum)
        return [child.pid for child in booted]
