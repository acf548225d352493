"""Contexts as texts: behind the tags of an id, in whose company they go from place to place (tags.lua)."""

from __future__ import annotations

import re
from typing import Final

#: What a context begins with among the tags: no tag has it.
MARK: Final = "\1"
#: Contexts of an id that are kept (tags.lua).
MOST_CONTEXTS: Final = 64
_CONTEXT: Final = re.compile(rb"\x01(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?=\n|$)")


def with_context(tags: str, context: str) -> str:
    """The tags of a push, and behind them its context."""
    return f"{tags}\n{MARK}{context}" if tags else f"{MARK}{context}"


def parse_contexts(text: bytes) -> tuple[str, ...]:
    """The contexts of an id, the latest last. What can be none is left out: anybody may have written it."""
    return tuple(found.decode() for found in _CONTEXT.findall(text)[-MOST_CONTEXTS:])
