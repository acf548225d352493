"""Calls: the arguments of a task as a payload, and its id; and the call that a payload stands for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

from lowkiq.codec import error_text
from lowkiq.errors import InvalidJob, SettingsError, short
from lowkiq.job import NewJob
from lowkiq.usual import usual

#: Key of a payload that tells calls with equal arguments apart. No parameter is called so.
TOKEN: Final = "__call__"  # noqa: S105 (it is no secret)
Key = str | Callable[..., Any]


class Call(NamedTuple):
    """The call that a payload stands for."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    token: str | None


class Calls:
    """
    The calls of one function. A payload is the arguments by their names, however they were given: so equal calls merge,
    and a worker of Lowkiq that takes over the queue one day can read it.

    Args:
        skipped: parameters at the front that nobody gives (self).
    """

    def __init__(self, name: str, function: Callable[..., Any], key: Key, *, skipped: int, merge: bool) -> None:
        self._name = name
        self._key = key
        self._merge = merge
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[skipped:]
        self._signature = signature.replace(parameters=parameters)
        #: Its parameter for other keywords.
        self._more = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), None)
        if isinstance(key, str) and key not in self._signature.parameters:
            named = ", ".join(self._signature.parameters) or "none"
            raise SettingsError(f"task {name}: key={key!r} is none of its arguments ({named}), nor a function of them")

    def job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """
        The job that a call becomes.

        Raises:
            TypeError: the function can't be called so.
            InvalidJob: the call has no id.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self._name}: {error}") from None
        payload = dict(bound.arguments)
        if not self._merge:
            payload[TOKEN] = uuid4().hex
        return {"id": self._id(bound), "payload": payload}

    def call(self, payload: Any) -> Call:
        """The call of a payload. Raises TypeError for what is none of this function."""
        if not isinstance(payload, dict):
            raise TypeError(f"task {self._name} can't be called with {short(payload)}: it takes its arguments by name")
        arguments = dict(payload)
        token = arguments.pop(TOKEN, None)
        if strange := arguments.keys() - self._signature.parameters.keys():
            raise TypeError(f"task {self._name} takes no argument {', '.join(sorted(strange))}")
        # In the order of the parameters: Redis has them by their names, and that of its dict may be another.
        ordered = {name: arguments[name] for name in self._signature.parameters if name in arguments}
        bound = inspect.BoundArguments(self._signature, ordered)
        # Checked once more: an argument may be missing, and what follows a gap is then given by its name.
        self._signature.bind(*bound.args, **bound.kwargs)
        return Call(bound.args, bound.kwargs, token)

    def _id(self, bound: inspect.BoundArguments) -> Any:
        named = inspect.BoundArguments(self._signature, dict(bound.arguments))  # defaults are not pushed
        named.apply_defaults()
        if isinstance(self._key, str):
            id = named.arguments[self._key]
        else:
            arguments = dict(named.arguments)
            more = arguments.pop(self._more, {}) if self._more else {}
            try:
                id = self._key(**arguments, **more)
            except Exception as error:
                raise InvalidJob(f"task {self._name}: key= failed: {error_text(error)}") from error
        id = usual(id)
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise InvalidJob(
                f"task {self._name}: key={short(self._key)} gave {short(id)} ({type(id).__name__}): it must give a "
                "string or an integer, as `key=lambda order_id, **_: str(order_id)` does"
            )
        return id
