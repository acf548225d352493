"""Live options: those of a queue that can be set while nodes run, beside what the code says."""

from __future__ import annotations

from typing import NamedTuple

from lowkiq.admin.live import LiveSetting, Value, read_live
from lowkiq.log import DEFAULT_LEVEL
from lowkiq.options import ALERT_LIMITS, SETTABLE
from lowkiq.rate import Rate
from lowkiq.web.view import View


class Option(NamedTuple):
    name: str
    code: Value
    #: False where this application does not have the worker.
    is_known: bool
    setting: LiveSetting | None

    @property
    def value(self) -> Value:
        """The value that nodes go by."""
        return self.setting.value if self.setting else self.code


def options_of(view: View, queue: str) -> list[Option]:
    """All options that can be set. It asks Redis, and blocks."""
    live = read_live(view.backend.caller, view.backend.namespace).get(queue, {})
    worker = view.app.workers.get(queue)
    found = []
    for name in SETTABLE:
        if name in ALERT_LIMITS:
            found.append(Option(name, getattr(view.app.settings, name), True, live.get(name)))
            continue
        code = DEFAULT_LEVEL if name == "log_level" else getattr(worker, name, None)
        is_known = name == "log_level" or (worker is not None and name != "weight")
        found.append(Option(name, str(code) if isinstance(code, Rate) else code, is_known, live.get(name)))
    return found
