"""What a push accepts as a job, and what it says of the rest."""

from __future__ import annotations

import datetime
import math
import time
import traceback
import uuid
from collections import UserDict
from decimal import Decimal
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq import InvalidJob, LowkiqError
from lowkiq.codec import dump_payload
from lowkiq.job import EncodedJob, encode_jobs, shard_of


def encode(*jobs: Any, dump: Any = dump_payload, max_id_bytes: int = 512, max_payload_bytes: int = 1 << 20) -> Any:
    return encode_jobs(jobs, dump, max_id_bytes=max_id_bytes, max_payload_bytes=max_payload_bytes)


def refusal(*jobs: Any, **limits: Any) -> str:
    with pytest.raises(InvalidJob) as caught:
        encode(*jobs, **limits)
    return str(caught.value)


def test_only_the_id_is_needed() -> None:
    assert encode({"id": "a"}) == [EncodedJob(b"a", b'""', "", "")]


def test_an_integer_id_is_its_digits() -> None:
    assert [job.id for job in encode({"id": 17}, {"id": -1}, {"id": "17"})] == [b"17", b"-1", b"17"]


def test_null_is_a_payload() -> None:
    assert encode({"id": "a", "payload": None})[0].payload == b"null"


def test_a_datetime_is_its_unix_time() -> None:
    at = datetime.datetime(2026, 11, 20, 12, 0, 0, 250_000, tzinfo=datetime.UTC)
    assert encode({"id": "a", "perform_in": at})[0].perform_in == f"{at.timestamp():.6f}"
    there = at.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
    assert encode({"id": "a", "perform_in": there}) == encode({"id": "a", "perform_in": at})


def test_a_naive_datetime_is_refused_and_the_time_zone_named_that_it_would_have_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        text = refusal({"id": "a", "perform_in": datetime.datetime(2026, 11, 20, 12)})  # noqa: DTZ001 (as a user might)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "perform_in 2026-11-20 12:00:00 has no time zone, and would be taken for IST, this machine's" in text
    assert "give it one, as in datetime.now(timezone.utc), or say delay=seconds" in text


@pytest.mark.parametrize(
    ("delay", "text"),
    [(7200, "+7200.000000"), (0, "+0.000000"), (0.25, "+0.250000"), (100 * 366 * 86_400, "+3162240000.000000")],
)
def test_a_delay_is_seconds_after_a_plus(delay: float, text: str) -> None:
    assert encode({"id": "a", "delay": delay})[0].perform_in == text


@pytest.mark.parametrize("perform_in", [10**9, 1_000_000_000.5, 1_790_000_000])
def test_a_time_since_2001_is_one(perform_in: float) -> None:
    assert encode({"id": "a", "perform_in": perform_in})[0].perform_in == f"{perform_in:.6f}"


def test_a_delay_may_be_a_timedelta() -> None:
    delays = datetime.timedelta(minutes=5), datetime.timedelta(0), datetime.timedelta(microseconds=1)
    jobs = encode(*({"id": "a", "delay": delay} for delay in delays))
    assert [job.perform_in for job in jobs] == ["+300.000000", "+0.000000", "+0.000001"]


@pytest.mark.parametrize(
    "value",
    [1_790_000_000, 2e9, datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC), 60, -1, "x", None, True, math.nan,
     1_795_803_608_992, datetime.datetime(2026, 11, 20), datetime.timedelta(1), datetime.date(2026, 1, 1)],  # noqa: DTZ001
)  # fmt: skip
def test_at_and_the_name_that_it_has_in_ruby_take_and_refuse_the_same(value: Any) -> None:
    def told(key: str) -> Any:
        try:
            return encode({"id": "a", key: value})
        except InvalidJob as error:
            return str(error).replace(f" {key} ", " KEY ")

    assert told("at") == told("perform_in")


def test_any_mapping_will_do() -> None:
    assert encode(UserDict({"id": "a", "score": 1}))[0].score == 1.0


def test_an_id_may_be_as_long_as_the_limit_in_bytes() -> None:
    assert encode({"id": "é" * 256})[0].id == "é".encode() * 256


SELF: list[Any] = []
SELF.append(SELF)
SELF_IN_DICT: dict[str, Any] = {}
SELF_IN_DICT["me"] = [SELF_IN_DICT]


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({}, "job 0: id is missing"),
        ({"Id": "a"}, "job 0: id is missing"),
        ({"id": ""}, "job 0 (id ''): id must not be empty"),
        ({"id": None}, "job 0 (id None): id must be a string or an integer, not NoneType"),
        ({"id": True}, "id must be a string or an integer, not bool"),
        ({"id": 1.0}, "id must be a string or an integer, not float"),
        ({"id": b"a"}, "id must be a string or an integer, not bytes"),
        ({"id": "x" * 513}, "has 513 bytes, max_id_bytes is 512: hash it"),
        ({"id": "é" * 257}, "has 514 bytes"),
        ({"id": "\ud800"}, "can't be written in UTF-8: escape it first"),
        ({"id": 10**5000}, "id is an integer of more than 4,300 digits: hash it"),
        ({"id": "a", "payloda": 1}, "job 0 (id 'a'): unknown key `payloda`, did you mean `payload`?"),
        ({"id": "a", "performin": 1}, "did you mean `perform_in`?"),
        ({"id": "a", "zzz": 1}, "unknown key `zzz`, known are: after, at, debounce, delay, id, keep, payload, per"),
        ({"id": "a", 5: 1}, "unknown key `5`"),
        ({"id": "a", "score": math.nan}, "score must be finite, not nan"),
        ({"id": "a", "score": math.inf}, "score must be finite, not inf"),
        ({"id": "a", "score": "1"}, "score must be a number, not '1' (str)"),
        ({"id": "a", "score": None}, "score must be a number, not None (NoneType)"),
        ({"id": "a", "score": True}, "score must be a number, not True (bool)"),
        ({"id": "a", "score": Decimal(1)}, "score must be a number, not Decimal('1') (Decimal)"),
        ({"id": "a", "score": 10**400}, "score is too large for a double: 1000"),
        ({"id": "a", "score": 10**5000}, "score is too large for a double"),
        ({"id": "a", "score": Broken()}, "score must be a number"),
        (
            {"id": "a", "score": 1_795_803_608_992_325_123},
            "score 1795803608992325123 is beyond 2**53, where Redis would ",
        ),
        ({"id": "a", "score": 2**60}, "is beyond 2**53"),
        ({"id": "a", "score": -(2**53) - 1}, "score -9007199254740993 is beyond 2**53"),
        (
            {"id": "a", "score": 0x0192_F0E1_7B3C_7000_8000_0000_0000_0001},
            "use a smaller one in the same order, such as",
        ),
        (
            {"id": "a", "perform_in": 1_795_803_608_992},
            "looks like milliseconds; did you mean 1795803608.992000, in sec",
        ),
        (
            {"id": "a", "perform_in": 1_795_803_608_992_325.0},
            "looks like microseconds; did you mean 1795803608.992325,",
        ),
        (
            {"id": "a", "perform_in": 1_795_803_608_992_325_123},
            "looks like nanoseconds; did you mean 1795803608.992325",
        ),
        (
            {"id": "a", "perform_in": 253402300799.0},
            "perform_in 253402300799 must be a Unix time in seconds, at most a ",
        ),
        (
            {"id": "a", "perform_in": 9007199254740993.0},
            "perform_in 9.00719925474099e+15 must be a Unix time in seconds",
        ),
        (
            {"id": "a", "perform_in": 1e30},
            "perform_in 1e+30 must be a Unix time in seconds, at most a hundred years ahead",
        ),
        ({"id": "a", "perform_in": 1.7976931348623157e308}, "at most a hundred years ahead"),
        (
            {"id": "a", "perform_in": datetime.datetime.max.replace(tzinfo=datetime.UTC)},
            "at most a hundred years ahead",
        ),
        ({"id": "a", "perform_in": -math.inf}, "perform_in must be finite, not -inf"),
        ({"id": "a", "perform_in": math.nan}, "perform_in must be finite, not nan"),
        ({"id": "a", "perform_in": "tomorrow"}, "perform_in must be a number or a datetime, not 'tomorrow' (str)"),
        ({"id": "a", "perform_in": datetime.date(2026, 1, 1)}, "perform_in must be a number or a datetime"),
        ({"id": "a", "perform_in": datetime.timedelta(1)}, "perform_in must be a number or a datetime"),
        ({"id": "a", "perform_in": datetime.timedelta(hours=1)}, "(timedelta): write delay=3600, the seconds of it"),
        ({"id": "a", "perform_in": datetime.datetime.min}, "job 0 (id 'a'): "),  # noqa: DTZ901 (naive, as a user might)
        ({"id": "a", "perform_in": 60}, "job 0 (id 'a'): perform_in 60 is a Unix time; did you mean delay=60?"),
        ({"id": "a", "perform_in": 0.5}, "perform_in 0.5 is a Unix time; did you mean delay=0.5?"),
        ({"id": "a", "perform_in": -1}, "perform_in -1 is a Unix time"),
        ({"id": "a", "perform_in": 10**9 - 1}, "did you mean delay=999999999?"),
        ({"id": "a", "delay": -1}, "delay is -1, it must be from 0 to 3,162,240,000 seconds"),
        ({"id": "a", "delay": 1e10}, "delay is 10000000000.0, it must be from 0 to"),
        ({"id": "a", "delay": math.inf}, "delay must be finite, not inf"),
        ({"id": "a", "delay": math.nan}, "delay must be finite, not nan"),
        ({"id": "a", "delay": "60"}, "delay must be a number or a timedelta, not '60' (str)"),
        ({"id": "a", "delay": True}, "delay must be a number or a timedelta, not True (bool)"),
        ({"id": "a", "delay": None}, "delay must be a number or a timedelta, not None"),
        ({"id": "a", "delay": datetime.timedelta(-1)}, "it must be from 0 to 3,162,240,000 seconds"),
        ({"id": "a", "delay": datetime.timedelta.max}, "it must be from 0 to 3,162,240,000 seconds"),
        ({"id": uuid.UUID(int=1)}, "not UUID: write str(id), or annotate the worker's ids UUID"),
        ({"id": datetime.date(2026, 1, 1)}, "not date: write str(id), or annotate the worker's ids date"),
        ({"di": "a"}, "job 0: id is missing; unknown key `di`"),
        ({"job_id": "a"}, "job 0: id is missing; unknown key `job_id`, did you mean `id`?"),
        ({"id": "a", "eta": 1}, "unknown key `eta`, did you mean `at`?"),
        ({"id": "a", "countdown": 1}, "unknown key `countdown`, did you mean `delay`?"),
        ({"id": "a", "args": [1]}, "unknown key `args`, did you mean `payload`?"),
        ({"id": "a", "priority": 1}, "unknown key `priority`, all jobs of a worker have what its options say"),
        ({"id": "a", "queue": "b"}, "unknown key `queue`, a job goes to the queue of the worker"),
        ({"id": "a", "delay": 5, "perform_in": 1_790_000_000}, "delay and perform_in both say when it is due"),
        ({"id": "a", "delay": 5, "at": 1_790_000_000}, "at and delay both say when it is due: give one of them"),
        ({"id": "a", "at": 2e9, "perform_in": 2e9}, "at and perform_in both say when it is due: give one of them"),
        ({"id": "a", "at": 2e9, "delay": 0, "perform_in": 2e9}, "at and delay and perform_in all say when it is due"),
        ({"id": "a", "dealy": 5}, "unknown key `dealy`, did you mean `delay`?"),
        ({"id": "a", "payload": math.nan}, "payload is nan, which JSON can't hold"),
        ({"id": "a", "payload": {"a": [1, math.inf]}}, "payload['a'][1] is inf, which JSON can't hold"),
        ({"id": "a", "payload": {"a": {1, 2}}}, "payload['a'] is a set, which JSON can't hold; convert it or set dump"),
        ({"id": "a", "payload": [set()]}, "payload[0] is a set"),
        ({"id": "a", "payload": b"raw"}, "payload is a bytes"),
        ({"id": "a", "payload": [object()]}, "payload[0] is a object"),
        ({"id": "a", "payload": {"at": datetime.datetime.now(datetime.UTC)}}, "payload['at'] is a datetime"),
        ({"id": "a", "payload": [Decimal("1.5")]}, "payload[0] is a Decimal"),
        ({"id": "a", "payload": {1: 2}}, "payload has the key 1 (int); JSON's keys are strings"),
        ({"id": "a", "payload": [{None: 2}]}, "payload[0] has the key None (NoneType)"),
        ({"id": "a", "payload": (math.nan,)}, "payload[0] is nan"),
        ({"id": "a", "payload": 10**5000}, "payload can't be dumped"),
        ({"id": "a", "payload": SELF}, "nested too deeply, or contains itself"),
        ({"id": "a", "payload": SELF_IN_DICT}, "nested too deeply, or contains itself"),
        ({"id": "a", "payload": "\ud800"}, "payload can't be dumped"),
        ({"id": "a", "payload": "x" * (1 << 20)}, "payload has 1,048,578 bytes, max_payload_bytes is 1,048,576"),
        (None, "job 0: must be a mapping with an id, not NoneType"),
        ("a", "job 0: must be a mapping with an id, not str"),
        (["id", "a"], "job 0: must be a mapping with an id, not list"),
        (5, "job 0: must be a mapping with an id, not int"),
    ],
)
def test_what_can_t_be_a_job_is_refused_by_job_and_field(job: Any, message: str) -> None:
    text = refusal(job)
    assert message in text
    assert text.startswith("job 0")
    assert len(text) < 300


def test_a_refusal_says_which_job() -> None:
    assert refusal({"id": "a"}, {"id": "b"}, {"id": "c", "score": "x"}).startswith("job 2 (id 'c'): score must be")


def test_a_long_id_is_not_repeated_in_full() -> None:
    assert len(refusal({"id": "x" * 10_000})) < 250


@pytest.mark.parametrize("jobs", [{"id": "a"}, "a", b"a", 5, None])
def test_what_is_not_a_list_of_jobs_is_refused(jobs: Any) -> None:
    with pytest.raises(InvalidJob, match=f"takes a list of jobs, not a {type(jobs).__name__}: wrap it in"):
        encode_jobs(jobs, dump_payload, max_id_bytes=512, max_payload_bytes=100)


def test_what_a_dump_of_the_user_raises_or_returns_is_explained() -> None:
    def broken(payload: Any) -> bytes:
        raise KeyError("oops")

    assert "payload can't be dumped: 'oops'" in refusal({"id": "a"}, dump=broken)
    assert "dump_payload must return bytes or str" in refusal({"id": "a"}, dump=lambda payload: 5)
    assert encode({"id": "a"}, dump=lambda payload: "é")[0].payload == "é".encode()


def test_an_invalid_job_is_one_of_the_library_s_errors_and_a_value_error() -> None:
    assert issubclass(InvalidJob, LowkiqError)
    assert issubclass(InvalidJob, ValueError)


def test_scores_that_a_double_holds_are_taken_as_they_are() -> None:
    scores = [2**53, -(2**53), 2.0**60, 1e308, -1e308, 5e-324, -0.0, 0.1 + 2**-56]
    assert [encode({"id": "a", "score": score})[0].score for score in scores] == scores


@pytest.mark.parametrize(
    ("id", "crc", "of_five"),
    [("1", 2212294583, 3), ("order-42", 1475806942, 2), ("é", 235179326, 1), ("123456789", 0xCBF43926, 2)],
)
def test_a_shard_is_the_crc32_of_the_id_s_utf_8_modulo_the_number_of_shards(id: str, crc: int, of_five: int) -> None:
    assert crc32(id.encode()) == crc
    assert shard_of(id.encode(), 5) == of_five


@given(st.text(min_size=1), st.integers(1, 65_536))
def test_a_shard_is_one_of_those_there_are(id: str, count: int) -> None:
    assert 0 <= shard_of(id.encode("utf-8", "replace"), count) < count


def test_a_refusal_is_one_traceback_and_with_it_that_of_a_hook() -> None:
    """It was three, each told as the cause of the next."""
    tellings: dict[str, Any] = {"payload": {"a": [{1}]}, "score": "x", "perform_in": 60, "tags": "eu"}
    for key, value in tellings.items():
        with pytest.raises(InvalidJob) as caught:
            encode({"id": 1, key: value})
        shown = "".join(traceback.format_exception(caught.value))
        assert shown.count("Traceback") == 1 + (key == "payload"), shown

    def broken(_: object) -> bytes:
        raise KeyError("oops")

    with pytest.raises(InvalidJob) as caught:
        encode({"id": 1}, dump=broken)
    assert isinstance(caught.value.__cause__, KeyError)
