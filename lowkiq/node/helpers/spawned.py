"""A helper that begins anew, with isolation="spawn": a new interpreter, which imports the application once more."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from lowkiq import log
from lowkiq.codec import error_text
from lowkiq.handlers import forks
from lowkiq.importing import load_app
from lowkiq.node.helpers import helper_process
from lowkiq.node.helpers.frames import Channel, FromNode, Ready, end_of
from lowkiq.node.runtime import chosen_workers
from lowkiq.process.faults import dump_on_faults
from lowkiq.process.lines import keep_streams
from lowkiq.process.signals import disarm, outlast, spare_forks

logger = log.get_logger()

#: What the interpreter runs. What it is to do is the last word of its command line.
_MAIN: Final = (
    "import json, sys; told = json.loads(sys.argv.pop()); sys.path[:] = told['path']; "
    "from lowkiq.node.helpers.spawned import main; main(told)"
)


def begin_anew(end: socket.socket, *, app: str, node: int) -> NoReturn:
    """
    Becomes a new interpreter, in a process that was just forked for a helper. Its parent, group and what the kernel was
    told of it stay; of all that it has open only the socket and the streams do.
    """
    level, path = log.chosen
    told = {"path": sys.path, "end": end.fileno(), "app": app, "node": node, "level": level, "log": path and str(path)}
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    os.set_inheritable(end.fileno(), True)
    os.execv(sys.executable, [sys.executable, *flags, "-c", _MAIN, json.dumps(told)])  # noqa: S606


def main(told: dict[str, Any]) -> NoReturn:
    """The whole life of such a helper."""
    outlast()
    end = end_of(told["end"])
    end.set_inheritable(False)
    log.configure(told["level"], told["log"] and Path(told["log"]))
    # What another helper has from its node.
    disarm()
    spare_forks()
    keep_streams()
    dump_on_faults()
    try:
        app = load_app(told["app"])
        workers = chosen_workers(app, None)
    except BaseException as error:
        logger.exception("helper_refused", what=f"import of {told['app']}")
        Channel[FromNode](end, FromNode).send(Ready(f"import of {told['app']}: {error_text(error)}"))
        forks.end(1)
    forks.end(helper_process.run(end, workers=workers, settings=app.settings, node=told["node"]))
