"""
The place of a supervisor and of its sockets, for everything that looks for them.

Imports nothing: a probe finds them within milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where the supervisor listens for commands, and its embedded Redis for clients, within the state directory.
CONTROL_SOCKET = "/control.sock"
EMBEDDED_SOCKET = "/redis/redis.sock"


def find_state_directory(environment: Mapping[str, str], given: str | None = None) -> str:
    """The directory where a supervisor keeps its sockets and its dumps."""
    return given or environment.get("LOWKIQ_STATE_DIR") or runtime_directory(environment) or ".lowkiq"


def runtime_directory(environment: Mapping[str, str]) -> str:
    """The service's own directory, which systemd empties when it stops. Several are separated by colons."""
    return environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
