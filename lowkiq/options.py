"""
Options: a row for each of a worker's, and for each that people set while nodes run, with its type and what it may be.
`@app.worker`, registration, live settings and what explains them read the rows. Defaults stand in `Worker`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, cast, get_args, get_origin, get_type_hints

from lowkiq.checks import FunctionOf, OneOf, UpTo, Whole
from lowkiq.environment import MOST_WEIGHT
from lowkiq.errors import SettingsError, short, unknown_option
from lowkiq.fewer import Debounce, Equal, Keep, check_debounce, check_equal, check_throttle
from lowkiq.policies import MOST_RETRIES, Retry, check_retry
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.rate import Rate, parse_rate
from lowkiq.settings import NAME, QUEUE_NAME

#: Seconds that a perform_timeout may be: a day.
LONGEST_PERFORM: Final = 86_400


def _check_name(label: str, value: Any) -> None:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise SettingsError(f"{label} {value!r} must match {NAME.pattern}; set one")
    if not QUEUE_NAME.fullmatch(value):
        raise SettingsError(f"{label} {value!r} is a step in a path, no browser would find its page; set one")


def _check_timeout(label: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= LONGEST_PERFORM):
        raise SettingsError(
            f"{label} is {short(value)}, it must be a number of seconds above 0 and up to {LONGEST_PERFORM:,}, or None"
        )


def _check_rate(label: str, value: Any) -> None:
    if not isinstance(value, Rate):
        raise SettingsError(f"{label} is {short(value)}, it must be such as Rate(100, per=60), or None")


def _check_rate_text(label: str, value: Any) -> None:
    parse_rate(label.removesuffix(": rate"), value)


_OF_PAYLOAD: Final = FunctionOf("a payload", "lambda change: change.order_id")


class _Both(TypedDict, total=False):
    """Options of a worker that people can set while nodes run, too: each with the line that explains it to them."""

    concurrency: Annotated[
        int | None,
        Whole(1, 1_000),
        "Batches of one shard that run at a time: {}, or none for as many as threads are free.",
    ]
    max_running: Annotated[
        int | None,
        Whole(1, 10_000),
        "Batches of the queue that run at a time on all nodes: {}, or none for any number.",
    ]
    batch_size: Annotated[int, Whole(1, 1_000), "Ids that one perform gets at most: {}."]
    max_retry_count: Annotated[
        int, Whole(0, MOST_RETRIES), "Retries of a job, also where its worker's retry has limits of its own: {}."
    ]
    when_exhausted: Annotated[
        Literal["bury", "block", "discard"],
        "After the last try: bury, block or discard.",
    ]
    perform_timeout: Annotated[float | None, _check_timeout, "Seconds that a batch may take, or none."]


class LiveOptions(_Both, total=False):
    """What can be set while nodes run. The last two no worker has: nodes are told their weights."""

    rate: Annotated[
        str | None,
        _check_rate_text,
        "Jobs that may start in so many seconds, such as 100/60, or none. By key, if the code says so.",
    ]
    weight: Annotated[
        int | None,
        Whole(1, MOST_WEIGHT),
        "Its share of a node's threads beside other queues, 1 where none is set: {}, or none.",
    ]
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "The lowest level that nodes of the queue log: debug, info, warning or error.",
    ]


class AlertLimits(TypedDict, total=False):
    """Limits of a queue's alerts, which people set beside these, for no node: settings of these names are for all."""

    alert_lag: Annotated[float, UpTo(31_536_000), "Seconds by which its jobs may be late without an alert; 0: any."]
    alert_failing: Annotated[float, UpTo(1), "Share of its tries that may fail without an alert, 0.5 for half; 0: any."]
    alert_morgue: Annotated[
        int, UpTo(1_000_000_000), "Jobs of it that may die within an hour without an alert, less one; 0: any number."
    ]
    alert_long: Annotated[
        float,
        UpTo(1_000_000),
        "Times as long as 99 of 100 take that a job of it may run without an alert; 0: any.",
    ]


class Settable(LiveOptions, AlertLimits, total=False):
    """All that can be set of a queue."""


class WorkerOptions(_Both, total=False):
    """Options of a worker, as `@app.worker` takes them: what they do is told in `Worker`."""

    queue_name: Annotated[str, _check_name]
    shards_count: Annotated[int, Whole(1, MOST_SHARDS)]
    max_payloads: Annotated[int | None, Whole(1, 1_000)]
    retry: Annotated[Retry, check_retry]
    debounce: Annotated[Debounce | None, check_debounce]
    throttle: Annotated[float | None, check_throttle]
    keep: Keep
    equal: Annotated[Equal | None, check_equal]
    isolation: Literal["thread", "process", "spawn"]
    rate: Annotated[Rate | None, _check_rate]
    pushes: Literal["now", "on_success"]
    id: Annotated[Callable[[Any], object] | None, _OF_PAYLOAD]
    score: Annotated[Callable[[Any], float] | None, _OF_PAYLOAD]
    fair_by: Annotated[
        Callable[[Any, Any], str | int] | None,
        FunctionOf("an id and a payload", "lambda id, change: change.tenant"),
    ]


class Option(NamedTuple):
    #: Raises SettingsError for what it can't be, None apart; it is told a label that ends with the option's name.
    check: Callable[[str, Any], None]
    may_be_none: bool
    #: For people who may set it.
    explained: str

    def __call__(self, label: str, value: Any) -> None:
        """Raises SettingsError for a value that it can't have, with what it may be."""
        if value is not None or not self.may_be_none:
            self.check(label, value)

    @classmethod
    def of(cls, hint: Any) -> Option:
        """The option that a row has."""
        kind, *more = get_args(hint) if get_origin(hint) is Annotated else [hint]
        checks: list[Any] = [one for one in more if callable(one)] or [OneOf(get_args(kind))]
        texts = [one for one in more if isinstance(one, str)]
        return cls(checks[0], type(None) in get_args(kind), "".join(texts).format(checks[0]))


def _rows(table: type) -> Mapping[str, Option]:
    return {name: Option.of(hint) for name, hint in get_type_hints(table, include_extras=True).items()}


#: Option of a worker → what it may be.
OF_WORKERS: Final = _rows(WorkerOptions)
#: Option of a worker that people can set as well, and option that people can set while nodes run → what it may be.
OF_BOTH: Final = _rows(_Both)
LIVE: Final = _rows(LiveOptions)
#: The same of limits of alerts, and of all that can be set of a queue.
ALERT_LIMITS: Final = _rows(AlertLimits)
SETTABLE: Final = {**LIVE, **ALERT_LIMITS}
#: The lowest level that is logged by nodes of a queue.
LOG_LEVELS: Final = cast("OneOf", LIVE["log_level"].check)


def check_live(queue: str, name: str, value: Any) -> None:
    """Raises SettingsError for what can't be set, or can't have that value; it names what was meant perhaps."""
    if name not in SETTABLE:
        raise unknown_option("live setting", name, SETTABLE)
    SETTABLE[name](f"queue {queue}: {name}", value)


def parse_live(text: str) -> tuple[str, Any]:
    """A setting as people type it: `concurrency=10`, `perform_timeout=none`. Raises SettingsError."""
    name, is_set, value = text.partition("=")
    if not is_set:
        raise SettingsError(f"{short(text)} sets nothing: say {name or 'name'}=VALUE")
    if value.lower() in {"none", "null"}:
        return name, None
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed
