"""Type variables of ids and payloads. Type checkers see their defaults, for which Python 3.11 has no syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    P = TypeVar("P", default=Any)
else:
    from typing import TypeVar

    K, P = TypeVar("K"), TypeVar("P")
