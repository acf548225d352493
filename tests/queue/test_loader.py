"""How scripts are put together, flagged, sent, and loaded again when Redis has lost them."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import redis

from lowkiq.errors import Fenced, PushFailed, StaleClaim
from lowkiq.job import EncodedJob
from lowkiq.queue import scripts
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.push import Producer
from lowkiq.queue.push_calls import push_call
from tests.queue.shard_driver import PAST
from tests.queue.stamps import once
from tests.support import ROOT

ROOMS = ROOT / "lowkiq"
NAMES = sorted(scripts.load(flags=False))
INCLUDES = sorted((ROOMS / "queue/scripts/includes").glob("*.lua"))
#: What makes room, or keeps order while there is none.
MAKE_ROOM = {"close_moved", "drop_moved", "end_feed", "feed", "mark_moved", "note_step",
    "claim", "finish", "isolate", "settle", "renew", "acquire", "release", "abandon", "drop", "cancel", "rest", "pause",
    "resume", "relay", "hold", "let_go", "stop_waiting", "unblock", "places", "keep_places", "rate", "renew_away",
    "restore_away",
}  # fmt: skip


def test_every_file_is_a_script_of_its_own_name():
    assert [str(path.relative_to(ROOMS)) for path in sorted(ROOMS.glob("*/scripts/*.lua"))] == scripts.paths()
    assert len(NAMES) == len(scripts.paths())


def test_a_script_has_the_functions_that_it_uses_once_and_no_others():
    """Lua makes each of them anew at every run."""
    functions = {
        name for path in INCLUDES for name in re.findall(r"(?m)^local function (\w+)", path.read_text("utf-8"))
    }
    for name, script in scripts.load(flags=False).items():
        source = re.sub("--.*", "", script.source)
        made = Counter(re.findall(r"local function (\w+)\(", source))
        uses = Counter(re.findall(r"\b(\w+)[(,]", source))
        assert {function for function in functions if made[function] > 1} == set(), name
        assert {one for one in functions if uses[one] > 1} == functions & made.keys(), name


#: What opens a block of Lua, what ends one, and what only looks so.
BLOCKS = re.compile(r"--[^\n]*|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\b(function|if|do|repeat|end|until)\b")


def hidden_sections(path: str) -> list[str]:
    """Sections that somebody includes, and that were made before inside a function, where he can't see them."""
    made: dict[str, list[int]] = {}
    hidden: list[str] = []

    def walk(text: str, outer: list[int], name: str) -> list[int]:
        """Returns the blocks that are open behind the text."""
        at, blocks = 0, outer
        for include in scripts._INCLUDE.finditer(text):
            blocks, at = _blocks(text[at : include.start()], blocks), include.end()
            file, sections = include.groups()
            for section in (f"{file} {one}" for one in sections.split()):
                if section not in made:
                    made[section] = blocks
                    blocks = walk(scripts._sections(file, scripts._read)[section.split()[1]], blocks, section)
                elif blocks[: len(made[section])] != made[section]:
                    hidden.append(f"{section}, which {name} needs")
        return _blocks(text[at:], blocks)

    walk(scripts._read(path), [], path)
    return hidden


def _blocks(text: str, before: list[int]) -> list[int]:
    """The blocks that are open after a text, each by a number of its own."""
    blocks = list(before)
    for word in re.finditer(BLOCKS, text):
        if word[1] in {"end", "until"}:
            blocks.pop()
        elif word[1]:
            blocks.append(next(numbers))
    return blocks


numbers = itertools.count()


def test_no_file_of_sections_needs_one_that_needs_it():
    """As import-linter has it of modules: whoever reads a file has read all that it stands on before."""
    needs = {
        path.stem: {file for file, _ in scripts._INCLUDE.findall(path.read_text("utf-8"))} - {path.stem}
        for path in INCLUDES
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of includes: {' <- '.join(error.args[1])}")


def test_no_section_is_hidden_from_who_needs_it():
    """Each is included once: where that is inside a function, nobody else has it, and finds out only as it runs."""
    assert {path: hidden for path in scripts.paths() if (hidden := hidden_sections(path))} == {}


@pytest.mark.parametrize("flags", [False, True])
def test_only_scripts_that_make_room_are_flagged(flags):
    for name, script in scripts.load(flags=flags).items():
        assert script.source.startswith("#!lua flags=allow-oom\n") == (flags and name in MAKE_ROOM), name
        assert script.source.count("#!") == (flags and name in MAKE_ROOM), name
        assert script.sha == hashlib.sha1(script.source.encode()).hexdigest().encode(), name


def test_every_script_compiles(app):
    app.caller.command("PING")
    for script in scripts.load(flags=False).values():
        assert app.caller.command("SCRIPT LOAD", script.source).encode() == script.sha


def test_flags_are_used_where_the_server_knows_them(shard):
    shard.redis.script_flush()
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    lease.ack("a")
    version = int(shard.redis.info("server")["redis_version"].split(".")[0])
    settle = scripts.load(flags=version >= 7)["settle"]
    assert shard.redis.script_exists(settle.sha.decode()) == [True]


@pytest.mark.parametrize("error", ["BUSY Redis is busy running a script", "MASTERDOWN Link with MASTER is down"])
def test_trouble_when_the_server_is_asked_says_nothing_of_flags(app, monkeypatch, error):
    def trouble(*_words):
        raise redis.ResponseError(error)

    caller = Caller(app.redis())
    with monkeypatch.context() as patch, pytest.raises(redis.ResponseError, match=error):
        patch.setattr(caller, "command", trouble)
        caller._choose()
    assert caller._choose() == app.caller._choose()


def test_a_script_says_its_keys_and_replies():
    for path in scripts.paths():
        header = [line for line in (ROOMS / path).read_text("utf-8").splitlines() if line.startswith("-- ")]
        for begin in (f"-- {Path(path).stem}: ", "-- KEYS", "-- returns"):
            assert any(line.startswith(begin) for line in header), (path, begin)


def test_a_lost_script_is_loaded_again(shard):
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    shard.redis.script_flush()
    assert [job.id for job in lease.claim()] == ["a"]
    shard.redis.script_flush()
    assert lease.ack("a").acked == 1


def test_lost_scripts_of_a_pipeline_are_loaded_again_and_keep_their_order(shard):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST))
    lease = shard.lease()
    lease.claim(limit=1)
    shard.redis.script_flush()
    settle = shard.shard.release("a", lease.epoch, 1, "claim")
    claim = shard.shard.claim("a", lease.epoch, 2, 10, 10, bytes)
    released, claimed = shard.caller.run_all([settle, claim])
    assert released.restored == 1
    assert sorted(job.id for job in claimed.jobs) == ["a", "b"]


def test_a_refusal_after_loading_is_a_refusal(shard):
    lease = shard.lease()
    lease.node = "b"
    shard.redis.script_flush()
    with pytest.raises(Fenced):
        lease.claim()


def test_each_call_of_a_pipeline_is_refused_alone(shard):
    shard.push("a")
    lease = shard.lease()
    stale = shard.shard.claim("a", lease.epoch, 0, 1, 1, bytes)
    fenced = shard.shard.abandon("b", lease.epoch)
    good = shard.shard.claim("a", lease.epoch, 1, 1, 1, bytes)
    first, second, third = shard.caller.run_all([stale, fenced, good])
    assert isinstance(first, StaleClaim)
    assert isinstance(second, Fenced)
    assert [job.id for job in third.jobs] == ["a"]


def test_nothing_to_send_is_nothing_sent(shard):
    assert shard.caller.commands([]) == []


def test_errors_of_redis_are_not_refusals(shard):
    shard.redis.set(shard.key("meta"), "not a hash")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        shard.push("a")
    (result,) = shard.caller.run_all([push_call(shard.shard, [EncodedJob(b"a", b"x", "", "")], once())])
    assert isinstance(result, redis.ResponseError)


class Raced(Caller):
    """Redis loses its scripts, and another client loads them again, while our first pipeline is on its way."""

    def __init__(self, client):
        super().__init__(client)
        self._loads = [("SCRIPT LOAD", script.source) for script in self._choose().values()]
        self._server.pipeline = self._race

    def _race(self, commands, replicas=None):
        del self._server.pipeline  # the next ones find Redis as it is
        first, *rest = commands
        _, reply, *replies = self._server.pipeline([("SCRIPT FLUSH",), first, *self._loads, *rest])
        return [reply, *replies[len(self._loads) :]]


def test_a_claim_that_was_repeated_with_what_came_before_it_can_be_given_up(shard):
    """Its first reply is lost to us, as if the connection had broken: its number says so."""
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    peek = Call("peek", [shard.shard.prefix], [], list)
    claim = shard.shard.claim("a", lease.epoch, 1, 10, 10, bytes)
    peeked, claimed = Raced(shard.redis).run_all([peek, claim])
    assert peeked[1] == peeked[0]  # sent again after the claim went through
    assert isinstance(claimed, StaleClaim)
    assert lease.release("claim", number=1).restored == 1
    assert list(shard.queued()) == ["a"]


class Rounds(Caller):
    """Remembers what was sent in each round trip; Redis refuses everything from a given one on."""

    def __init__(self, client, broken_from=None):
        super().__init__(client)
        self.rounds, self.broken_from = [], broken_from

    def run_all(self, calls, replicas=None):
        if calls[0].script == "register":
            return super().run_all(calls, replicas)
        self.rounds.append([call.keys[0] for call in calls])
        if self.broken_from is not None and len(self.rounds) > self.broken_from:
            return [redis.ResponseError("OOM") for _ in calls]
        return super().run_all(calls, replicas)


def rows(count, ids):
    return [EncodedJob(b"%d" % (n % ids), b"%d" % n, "", "") for n in range(count)]


def test_a_large_push_sends_one_call_a_shard_at_a_time(app):
    """Or a later call could be accepted where one before it was not, and default scores would be out of order."""
    caller = Rounds(app.redis())
    assert Producer(caller, app.settings.namespace, "q", 3).push(rows(9000, 10)) == (10, 8990)
    assert len(caller.rounds) > 2
    assert all(len(set(prefixes)) == len(prefixes) for prefixes in caller.rounds)


def test_of_a_large_push_that_fails_the_first_part_was_accepted(app, shard):
    with pytest.raises(PushFailed, match="took 2000 of 4500 payloads for sure") as caught:
        Producer(Rounds(app.redis(), broken_from=2), app.settings.namespace, "q", 1).push(rows(4500, 1))
    assert (caught.value.new, caught.value.merged) == (1, 1999)
    payloads = shard.queued()["0"].payloads
    assert sorted(payloads, key=payloads.__getitem__) == [b"%d" % n for n in range(2000)]


def test_a_push_repeated_after_it_failed_keeps_its_order(app, shard):
    with pytest.raises(PushFailed):
        Producer(Rounds(app.redis(), broken_from=2), app.settings.namespace, "q", 1).push(rows(4500, 1))
    Producer(app.caller, app.settings.namespace, "q", 1).push(rows(4500, 1))
    payloads = shard.queued()["0"].payloads
    assert sorted(payloads, key=payloads.__getitem__) == [b"%d" % n for n in range(4500)]
