"""Payloads as text: hostile ones do no harm, and long ones are cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lowkiq.admin.jobs.reader import JobPreview, PayloadPreview
from lowkiq.web.render import formatting

#: Characters of one payload that are shown: indented, it is longer than its bytes.
SHOWN = 8_000
#: Characters of all payloads of a page together.
SHOWN_IN_ALL = 120_000
#: Levels of a payload that is shown as the object that it is. Deeper ones are left as text: nobody can read them, to
#: indent them takes the square of their depth, and not every client could parse them. (Python's own limit differs from
#: version to version: hundreds of levels, since 3.14 thousands.)
DEEPEST = 200


@dataclass(frozen=True)
class PayloadText:
    """A payload, its score and its size; the text is None where payloads are hidden."""

    score: float
    size: int
    text: str | None
    #: Bytes of it that the text was made of.
    shown: int

    @property
    def is_cut(self) -> bool:
        """True when there is more than what is shown."""
        return self.shown < self.size


def payload_texts(job: JobPreview, load: Callable[[bytes], Any] | None) -> Sequence[PayloadText]:
    """The payloads of a job. Without `load`, only their sizes."""
    texts = []
    left = SHOWN_IN_ALL
    for preview in job.payloads:
        text = _text(preview, load, min(SHOWN, left)) if load is not None and left > 0 else None
        left -= len(text or "")
        texts.append(PayloadText(preview.score, preview.size, text, len(preview.data)))
    return texts


def load_shallow(data: bytes, load: Callable[[bytes], Any]) -> Any:
    """Loads a payload. Raises ValueError when it is nested too deeply to be shown, and what `load` raises."""
    loaded = load(data)
    level = [loaded]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return loaded
    raise ValueError(f"nested more than {DEEPEST} levels deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _text(preview: PayloadPreview, load: Callable[[bytes], Any], most: int) -> str:
    if len(preview.data) == preview.size:
        with suppress(BaseException):  # load_payload is the user's, and raises and gives what it likes
            text = json.dumps(load_shallow(preview.data, load), indent=2, ensure_ascii=False, sort_keys=True)
            return formatting.block(text, most)
    return formatting.block(preview.data.decode("utf-8", "backslashreplace"), most)
