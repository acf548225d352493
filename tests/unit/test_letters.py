"""Letters are read from Redis, where anybody may have written."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.after import OPEN, word_of
from lowkiq.codec import join_words, split_words
from lowkiq.job import EncodedJob
from lowkiq.queue.letters import Letter, push_letter

PUSH = push_letter("17", "orders", 5, EncodedJob(b"18", b"payload", score=1.5, tags="a b", tenant="t"))


def parse(record: bytes) -> Letter:
    return Letter.parse(b"q:0:1", b"1", record)


def test_a_push_is_read_as_it_was_written() -> None:
    letter = parse(PUSH)
    assert (letter.of, letter.kind, letter.queue, letter.shards_count) == (b"17", b"push", "orders", 5)
    assert letter.job == EncodedJob(b"18", b"payload", score=1.5, tags="a b", tenant="t")
    assert parse(letter.following).words == [b"18"]


RUBBISH = {
    "no_words": b"",
    "a_length_that_is_none": b"x:17",
    "a_length_below_zero": b"-3:17",
    "a_length_beyond_the_end": PUSH + b"99:z",
    "too_many_words": PUSH + b"1:z",
    "too_few_words": join_words([b"17", b"push", b"orders", b"5", b"18", b"payload"]),
    "another_kind": join_words([b"17", b"sing", b"orders", b"5", b"18"]),
    "no_name_of_a_queue": join_words([b"17", b"forget", b"orders:}{", b"5", b"18"]),
    "no_shards": join_words([b"17", b"forget", b"orders", b"0", b"18"]),
    "too_many_shards": join_words([b"17", b"forget", b"orders", b"9" * 20, b"18"]),
    "no_score": PUSH.replace(b"3:1.5", b"3:low"),
    "no_others": push_letter("17", "w", 1, EncodedJob(b"18", b"", after="3:x")),
    "no_text": join_words([b"17", b"forget", b"\xff", b"5", b"18"]),
}


@pytest.mark.parametrize("name", RUBBISH)
@pytest.mark.timeout(20)
def test_rubbish_is_no_letter(name: str) -> None:
    with pytest.raises(ValueError):
        parse(RUBBISH[name])


@given(st.binary(max_size=60))
def test_whatever_stands_there_is_a_letter_or_a_value_error(record: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert parse(record).words


@given(st.lists(st.binary()))
def test_words_are_split_as_they_were_joined(words: list[bytes]) -> None:
    assert split_words(join_words(words)) == words


def test_a_push_names_those_after_which_it_runs() -> None:
    after = word_of(["orders 5 17", "b 2 one two", OPEN])
    letter = parse(push_letter("17", "w", 1, EncodedJob(b"18", b"", after=after)))
    assert [*letter.others][:2] == [("orders", b"17"), ("b", b"one two")]
