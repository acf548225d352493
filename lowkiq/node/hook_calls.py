"""How a node and its helpers call hooks of the user's that may fail."""

from __future__ import annotations

from collections.abc import Callable

from lowkiq.handlers import forks
from lowkiq.log import get_logger

logger = get_logger()


def call_hook(name: str, hook: Callable[[], object] | None) -> None:
    """Calls a hook of the user's, which may fail: that changes nothing for the process."""
    if hook:
        try:
            forks.run(hook)
        except BaseException:
            logger.exception(f"{name}_failed")
