"""After: the jobs that a job waits for, as a push names them, and their word for the push script (waiting.lua)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from lowkiq.codec import join_words, split_words
from lowkiq.errors import short

#: Jobs that one job of a push may wait for; a batch has no such limit.
MOST_AFTER: Final = 500

#: What a job waits for as long as more may come of it, with the name of the batch from which it may (waiting.lua): no
#: queue's name has a colon.
OPEN: Final = ":open"

#: A job as it is named where circles are looked for.
Name = TypeVar("Name", bound=Hashable)

#: Worker, or the name of its queue, and an id → "queue shards_count id", as scripts have it.
NameOf = Callable[[Any, Any], str]


def names_of(after: Any, name_of: NameOf) -> list[str]:
    """
    The jobs that are waited for, each once.

    Raises:
        TypeError, ValueError: it is no list of pairs of a worker and an id, or has too many.
    """
    if isinstance(after, str | bytes | Mapping) or not isinstance(after, Sequence | set | frozenset):
        raise TypeError(f"after must be a list of pairs, not {short(after)}: write after=[(OrderSync, 17)]")
    if len(after) > MOST_AFTER:
        raise ValueError(
            f"after has {len(after):,} jobs, it may have {MOST_AFTER}: for more there is app.batch(on_done=…)"
        )
    if not after:
        raise ValueError("after has no jobs: leave the key out to wait for none")
    names = []
    for pair in after:
        match pair:
            case (worker, id):
                names.append(name_of(worker, id))
            case _:
                raise TypeError(f"after has {short(pair)}, it must have pairs of a worker and an id: (OrderSync, 17)")
    return list(dict.fromkeys(names))


def word_of(names: Iterable[str]) -> str:
    """The word of a job that waits for these."""
    return join_words(map(str.encode, names)).decode()


def names_in(word: str) -> list[str]:
    """For whom a job with that word waits."""
    return [name.decode() for name in split_words(word.encode())]


def part_name(name: str) -> tuple[str, str]:
    """The queue and the id of "queue shards_count id". Raises ValueError for what is no such name."""
    queue, _, id = name.split(" ", 2)
    return queue, id


def circle(waits: Mapping[Name, Sequence[Name]]) -> list[Name] | None:
    """A circle of jobs that wait for one another, among those that are named here; None if there is none."""
    done: set[Name] = set()
    for start in waits:
        path: dict[Name, None] = {}
        stack = [(start, iter(waits[start]))] if start not in done else []
        while stack:
            name, others = stack[-1]
            path[name] = None
            following = next(others, None)
            if following is None:
                stack.pop()
                path.pop(name)
                done.add(name)
            elif following in path:
                names = list(path)
                return names[names.index(following) :]
            elif following in waits and following not in done:
                stack.append((following, iter(waits[following])))
    return None
