"""PayloadText: a payload as people read it. Hostile ones do no harm, and long ones are cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lowkiq.store.peeks import JobPeek, PayloadPeek
from lowkiq.web import words

#: Characters of one payload that are shown: indented, it is longer than its bytes.
SHOWN = 8_000
#: Characters of all payloads of a page together.
SHOWN_IN_ALL = 120_000


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
        """Whether there is more than what is shown."""
        return self.shown < self.size


def payload_texts(job: JobPeek, load: Callable[[bytes], Any] | None) -> Sequence[PayloadText]:
    """The payloads of a job. Without `load` only their sizes are told."""
    texts = []
    left = SHOWN_IN_ALL
    for peek in job.payloads:
        text = _text(peek, load, min(SHOWN, left)) if load is not None and left > 0 else None
        left -= len(text or "")
        texts.append(PayloadText(peek.score, peek.size, text, len(peek.data)))
    return texts


def _text(peek: PayloadPeek, load: Callable[[bytes], Any], most: int) -> str:
    if len(peek.data) == peek.size:
        try:
            loaded = load(peek.data)
            return words.block(json.dumps(loaded, indent=2, ensure_ascii=False, sort_keys=True), most)
        except Exception:  # noqa: BLE001 (load_payload is the user's, and gives what it likes)
            return words.block(peek.data.decode("utf-8", "backslashreplace"), most)
    return words.block(peek.data.decode("utf-8", "backslashreplace"), most)
