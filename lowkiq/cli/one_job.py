"""Commands on one job: `job` tells its story, `push` makes one, and `perform` runs one here."""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lowkiq import Lowkiq, SettingsError
from lowkiq.admin.jobs.finder import GONE, FoundJob
from lowkiq.admin.jobs.reader import JobPreview, JobReader
from lowkiq.admin.why.reasons import Reason
from lowkiq.admin.words import age, moment, plural, printable
from lowkiq.cli import tables
from lowkiq.cli.find import previews_of, reasons_of
from lowkiq.cli.opening import Answer, answering, fail
from lowkiq.cli.queues import Id, Queue, actions_on, queries_of, shards_count, with_ids
from lowkiq.codec import encodable, error_text
from lowkiq.environment import ExitCode
from lowkiq.errors import InvalidJob, LowkiqError, short
from lowkiq.worker import Worker

if TYPE_CHECKING:
    from lowkiq.testing import Outcome

PERFORM_EPILOG: Final = """\b
Examples:
  lowkiq -r shop.jobs perform OrderSync 17               run the job that failed in production here
  lowkiq -r shop.jobs perform OrderSync 17 --delete      and delete it there, once it is done

\b
It runs in this process, in the foreground, as a node would: put breakpoint() into it. It stays where it is in Redis,
and what it pushes is only counted, unless you say --push. What it does elsewhere, it does. A job that runs on a node at
that moment is refused; hold a queued one first (lowkiq hold), or a node may start it meanwhile.
"""
#: Where a job is looked for, that which has failed first.
PLACES: Final = ("morgue", "queue")


@answering
def job(app: Lowkiq, queue: Queue, id: Id) -> Answer:
    """Tells the story of a job: where it is and why, what it carries, its error. Exits with 1 if there is none."""
    places = with_ids(lambda ids: previews_of(app, queue).job(*ids), [id])
    reasons = reasons_of(app, [FoundJob(queue, place) for place in places])
    history = with_ids(lambda ids: queries_of(app, queue).history(*ids), [id])
    told = [(f"{event.kind}", event.at, event.node, event.detail) for event in history]
    rows = [_row(queue, place, reason) for place, reason in zip(places, reasons, strict=True)]
    events = [dict(zip(("kind", "at", "node", "detail"), event, strict=True)) for event in told]
    lines = [line for place, reason in zip(places, reasons, strict=True) for line in _lines(place, reason)]
    for kind, at, node, detail in told:
        lines.append("  ".join(printable(word, 200) for word in (moment(at), kind, node, detail) if word))
    if not places:
        typer.echo(f"lowkiq: no job {short(id)} in {queue}: {GONE}", err=True)
    return Answer({"queue": queue, "id": encodable(id), "places": rows, "history": events}, lines, bool(places))


@answering
def push(
    app: Lowkiq,
    queue: Queue,
    id: Id,
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Its payload.")] = '""',
    delay: Annotated[float, typer.Option(min=0, help="Seconds until it is due.")] = 0.0,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="May be given again.")] = None,
) -> Answer:
    """Pushes a job, as the application would: it needs that (-r), whose worker checks the payload."""
    worker = _worker(app, queue, "push to it")
    try:
        value = json.loads(payload)
    except ValueError as error:
        raise SettingsError(f"{short(payload)} is no JSON ({error}): quote it, such as '{{\"a\": 1}}'") from error
    with contextlib.suppress(Exception):  # of a type of the application's own; else the push says what is wrong
        value = worker.codec.load(payload.encode())
    options = ({"delay": delay} if delay else {}) | ({"tags": tags} if tags else {})
    try:
        pushed = app.push(worker, [{"id": id, "payload": value, **options}])  # type: ignore[typeddict-item]
    except InvalidJob as error:
        raise SettingsError(str(error)) from error
    as_words = "joined the payloads that are queued" if pushed.merged else "pushed"
    return Answer(pushed._asdict(), f"{printable(id, 200)} {as_words}")


@answering
def perform(
    app: Lowkiq,
    queue: Queue,
    id: Id,
    pushes: Annotated[bool, typer.Option("--push", help="Send what it pushes.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it in Redis once it is done here.")] = False,
) -> Answer:
    """Runs a job here, in the foreground, that is dead or queued. Exits with 1 if it fails."""
    from lowkiq.testing import fake  # noqa: PLC0415 (here, and below: other commands do without)
    from lowkiq.testing import perform as run  # noqa: PLC0415

    worker = _worker(app, queue, "run its jobs")
    place = with_ids(lambda ids: _whole(app, queue, *ids), [id])
    try:
        payloads = [worker.codec.load(payload.data) for payload in place.payloads]
    except Exception as error:  # noqa: BLE001 (load_payload is the user's)
        fail(f"a payload of job {short(id)} can't be loaded: {error_text(error)}", ExitCode.FAILED)
    if place.where == "queue" and not (place.is_held or place.is_blocked):
        typer.echo("lowkiq: it is queued, so a node may run it meanwhile: hold it first if it must not", err=True)
    attempt = max(place.retry_count, -1) + 2
    with contextlib.nullcontext() if pushes else fake(app) as jobs:
        outcome = run(worker, id, payloads, attempt=attempt, tags=place.tags)
        kept = 0 if jobs is None else sum(len(jobs.pushed(one)) for one in app.workers.values())
    deleted = _delete(app, queue, place) if delete and outcome.done else 0
    return Answer(_told_as_json(outcome, kept, deleted), _told(outcome, kept, deleted), outcome.done)


def _delete(app: Lowkiq, queue: str, place: JobPreview) -> int:
    """Deletes a job that was run here. Raises LowkiqError where there is more of it than was run."""
    if place.payload_count > len(place.payloads) or _whole(app, queue, place.id) != place:
        raise LowkiqError(
            f"job {short(place.id)} of {queue} is done here, and not deleted: it has other payloads by now"
        )
    view = "morgue" if place.where == "morgue" else "blocked" if place.is_blocked else "due"
    return actions_on(app, queue).delete_and_keep(view, [place.id]).moved


def _worker(app: Lowkiq, queue: str, what: str) -> type[Worker[Any]]:
    if queue not in app.workers:
        known = ", ".join(sorted(app.workers)) or "none: say -r MODULE"
        raise SettingsError(f"no worker of {queue} here, which it takes to {what}; known are: {known}")
    return app.workers[queue]


def _whole(app: Lowkiq, queue: str, id: str) -> JobPreview:
    """The job with all of its payloads. Raises SettingsError for one that is not there, or runs."""
    settings = app.settings
    reader = JobReader(
        app.caller, app.shards(queue, shards_count(app, queue)), settings.load_error, settings.max_id_bytes
    )
    found = reader.find(id)
    by_place = {
        one.where: one for one in reader.fetch([(where, *found) for where in (*PLACES, "claim")], settings.max_payloads)
    }
    if "claim" in by_place:
        raise SettingsError(f"job {short(id)} of {queue} runs on a node: wait for its end, or cancel it")
    if not by_place:
        raise SettingsError(f"no job {short(id)} in {queue}: {GONE}")
    return next(by_place[where] for where in PLACES if where in by_place)


def _row(queue: str, place: JobPreview, reason: Reason) -> dict[str, Any]:
    payloads = [{"score": one.score, "bytes": one.size, "text": _text(one.data)} for one in place.payloads]
    more = {"shard": place.shard, "tags": list(place.tags), "crashes": place.crashes, "traceback": place.traceback}
    return (
        tables.found(FoundJob(queue, place), reason)
        | more
        | {"payloads": payloads, "payload_count": place.payload_count}
    )


def _lines(place: JobPreview, reason: Reason) -> Iterator[str]:
    yield f"{reason.state}: {reason.says}."
    facts = [f"shard {place.shard}", plural(place.payload_count, "payload")]
    if place.where != "morgue" and place.retry_count >= 0:
        facts.append(f"failed {place.retry_count + 1:,} times")
    facts += [f"tags {', '.join(printable(tag, 100) for tag in place.tags)}"] if place.tags else []
    facts += [plural(place.crashes, "death") + " of nodes with it in hand"] if place.crashes else []
    yield f"  {', '.join(facts)}"
    for payload in place.payloads:
        more = " …" if len(payload.data) < payload.size else ""
        yield f"  {payload.score:.6f}  {printable(_text(payload.data), 2_000)}{more}"
    for line in (place.traceback or place.error or "").splitlines():
        yield f"  {printable(line, None)}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _told(outcome: Outcome, kept: int, deleted: int) -> Iterator[str]:
    error = outcome.error
    if isinstance(error, BaseException):
        yield from "".join(traceback.format_exception(error)).splitlines()
    elif error:
        yield printable(error, None)
    if outcome.done:
        yield f"{printable(outcome.id, 200)} is done{', and deleted' if deleted else ''}"
    elif outcome.snoozed is not None:
        yield f"{printable(outcome.id, 200)} snoozes for {age(outcome.snoozed)}"
    else:
        fate = "dead" if outcome.buried else "blocked" if outcome.blocked else "discarded"
        next_try = f"tried again in {age(outcome.retry_in)}" if outcome.retry_in is not None else fate
        yield f"{printable(outcome.id, 200)} failed in attempt {outcome.attempt}: on a node it would be {next_try}"
    if kept:
        yield f"it pushed {plural(kept, 'payload')}, which were not sent: --push sends them"


def _told_as_json(outcome: Outcome, kept: int, deleted: int) -> dict[str, Any]:
    error = outcome.error
    if isinstance(error, BaseException):
        error = "".join(traceback.format_exception_only(error)).strip()
    return {
        "done": outcome.done, "attempt": outcome.attempt, "retry_in": outcome.retry_in, "snoozed": outcome.snoozed,
        "error": error, "unsent": kept, "deleted": deleted,
    }  # fmt: skip
