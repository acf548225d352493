"""Names: has a process resolve one name as a file says, which may be rewritten at any time. Imported, it begins."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Final

from tests.support import HOST

NAME: Final = "redis.example"
#: Where the file is: {"port": 1234}, or {"is": "silent"} or "unknown".
VARIABLE: Final = "TEST_NAMES"
#: Seconds that a silent resolver takes.
SILENT: Final = 10.0

_resolve = socket.getaddrinfo


def _of_file(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
    if host != NAME:
        return _resolve(host, port, *rest, **options)
    said = json.loads(Path(os.environ[VARIABLE]).read_text())
    if said.get("is") == "silent":
        time.sleep(SILENT)
    if "port" not in said:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _resolve(HOST, said["port"], *rest, **options)


socket.getaddrinfo = _of_file


def say(**what: object) -> None:
    """Rewrites the file, as a whole."""
    path = Path(os.environ[VARIABLE])
    new = path.with_suffix(".new")
    new.write_text(json.dumps(what))
    new.replace(path)
