"""Whatever code of the application's raises as something is shown, the view shows the rest, and its server lives on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.reader import PayloadPreview
from lowkiq.web.render.payloads import _text


class Hasty(BaseException):
    """What a library of the user's may raise."""


def failing(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


each_error = pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), Hasty("x")], ids=repr)


@each_error
def test_a_payload_that_cannot_be_loaded_is_shown_as_it_is(
    make_app: Callable[..., Lowkiq], error: BaseException
) -> None:
    app = make_app(load_payload=failing(error), load_error=failing(error))
    worker = app.worker(queue_name="q", shards_count=1)(lambda batch: None)
    worker.perform_async([{"id": "a", "payload": 1}])
    assert worker.queries.fetch(["a"])[0].payloads == [b"1"]
    worker.actions.bury(["a"])
    previews = Previews(app.caller, app.shards("q", 1), load_error=failing(error), max_id_bytes=512)
    (job,) = previews.page("morgue").jobs
    assert job.error == "moved to the morgue by hand"
    assert _text(PayloadPreview(1.0, 1, b"1"), failing(error), 100) == "1"


@each_error
def test_a_payload_whose_text_cannot_be_had_is_shown_as_it_is(error: BaseException) -> None:
    class Odd(dict[str, Any]):
        def values(self) -> NoReturn:
            raise error

    assert _text(PayloadPreview(1.0, 2, b"{}"), lambda _: Odd(), 100) == "{}"
