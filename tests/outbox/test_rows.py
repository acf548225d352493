"""A row holds a job as it was validated, whatever its bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq import Lowkiq
from lowkiq.job import EncodedJob
from lowkiq.outbox import FIRST_SCORE, Row, UnreadableRow
from lowkiq.outbox.rows import job_of, rows_of

app = Lowkiq()
sync = app.worker(queue_name="sync")(lambda batch: None)


@given(
    id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    payload=st.binary(),
    score=st.one_of(st.just(""), st.floats(allow_nan=False, allow_infinity=False)),
    perform_in=st.sampled_from(["", "+5.000000", "1795595183.993619"]),
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=3, max_size=3),
)
def test_what_is_written_comes_back(id, payload, score, perform_in, words):
    job = EncodedJob(id.encode(), payload, score, perform_in, *words)
    (new,) = rows_of(sync, [job])
    assert "\0" not in new.job_id + new.job  # PostgreSQL has no such text
    found = job_of(Row(7, *new))
    assert found.score == (FIRST_SCORE + 7 if score == "" else score)
    found.score = score
    assert found == job


def test_what_people_see_of_a_row():
    (row,) = rows_of(sync, app.validated(sync, [{"id": 17, "payload": {"n": 1}, "tags": ["eu"]}]))
    assert row == ("sync", "17", '{"id":"17","payload":"{\\"n\\":1}","tags":"eu"}')


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "5", "null", "{}", '{"id":"1"}', '{"id":5,"payload":"1"}', '{"id":["%"],"payload":"1"}',
        '{"id":"1","payload":"1","score":"high"}', '{"id":"1","payload":"1","colour":"red"}',
        '{"id":"1","payload":"1","tags":5}',  '{"id":"1","payload":"1","perform_in":"soon"}',
        '{"id":["MQ==","MQ=="],"payload":"1"}', "\ud800", '{"id":"1","payload":"1","score":1795803608992325123}',
        '{"id":"1","payload":"1","perform_in":"1795803608992.000000"}',
    ],
)  # fmt: skip
def test_what_holds_no_job_is_told(text):
    with pytest.raises(UnreadableRow, match="row 7 holds no job"):
        job_of(Row(7, "sync", "1", text))


def test_a_row_id_that_no_score_can_hold_is_told():
    (row,) = rows_of(sync, app.validated(sync, [{"id": 17}]))
    assert job_of(Row(2**52, *row)).score == 2**52 + FIRST_SCORE
    with pytest.raises(UnreadableRow, match=r"score .* is beyond 2\*\*53"):
        job_of(Row(1_036_800_000_000_000_000, *row))
