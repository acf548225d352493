"""What follows from jobs, and what waits for them: random histories, and safeguards that are taken out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from lowkiq import Lowkiq
from tests import mutants
from tests.queue import following_world
from tests.queue.following_world import (
    a_run_is_waited_for,
    batches_with_the_same_end,
    history,
    many_wait_for_one,
    the_dead_are_waited_for,
    the_end_is_told_in_a_new_shard_whose_numbers_were_ahead,
    what_follows_keeps_its_order,
    who_asks_anew_in_a_new_shard_is_not_told_of_before,
    who_asks_anew_there_is_not_told_of_before_whose_numbers_were_ahead,
    who_waits_anew_is_not_told_of_before,
    who_was_paused_past_his_lease_sends_nothing,
)

SCENES = (
    a_run_is_waited_for, the_dead_are_waited_for, who_waits_anew_is_not_told_of_before,
    who_was_paused_past_his_lease_sends_nothing, what_follows_keeps_its_order,
    who_asks_anew_in_a_new_shard_is_not_told_of_before, batches_with_the_same_end,
    who_asks_anew_there_is_not_told_of_before_whose_numbers_were_ahead,
    the_end_is_told_in_a_new_shard_whose_numbers_were_ahead, many_wait_for_one,
)  # fmt: skip

SEEDS = 40


@pytest.mark.parametrize("part", range(4))
def test_each_follows_once_in_order_and_none_runs_too_early(app: Lowkiq, part: int) -> None:
    for seed in range(part, SEEDS, 4):
        app.redis().flushdb()
        try:
            history(app, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene(app: Lowkiq, scene: Callable[[Lowkiq], None]) -> None:
    scene(app)


MUTANTS = {
    "written_though_it_failed": ("settle.lua", "if done[ARGV[i]] then write_letter", "if true then write_letter"),
    "received_twice": ("receive.lua", "is_news = remember(id, name)", "is_news = remember(id, name) or true"),
    "forgotten_too_early": ("relay.lua", "if record == '' then", "if true then"),
    "never_forgotten": ("receive.lua", "is_news = forget_letter(id, name)", "is_news = false"),
    "numbers_do_not_rise": (
        "letters.lua", "math.max(now_us(), (tonumber(redis.call('HGET', P .. 'meta', 'posted')) or 0) + 1)",
        "1000000 - (tonumber(redis.call('HGET', P .. 'meta', 'posted')) or 0) % 1000",
    ),
    "numbers_begin_anew_in_a_new_shard": ("feed.lua", "if tonumber(ARGV[9]) > posted then", "if false then"),
    "taken_along_while_they_move": ("relay.lua", "redis.call('EXISTS', P .. 'feeders') == 1", "false"),
    "received_while_more_is_to_come": (
        "moving.lua", "if not refusal and redis.call('EXISTS', P .. 'feeders') == 1 then", "if false then",
    ),
    "letters_left_behind": ("sides.lua", ", {'outbox', 'zset'}", ""),
    "heard_left_behind": ("sides.lua", "{'heard', 'hash', 'each'}, ", ""),
    "waits_left_behind": ("sides.lua", "{'waits', 'hash', 'each'}, ", ""),
    "answered_before_it_was_asked": (
        "adopt.lua", "redis.call('ZADD', P .. index .. ':' .. id, 'GT'", "redis.call('ZADD', P .. index .. ':' .. id",
    ),
    "undone_without_waiting": ("put_back.lua", "  if done then wait_again(", "  if false then wait_again("),
    "revived_without_waiting": ("revive.lua", "    if done then\n", "    if false then\n"),
    "back_and_not_asked": ("waiting.lua", "for i = 1, #names, 2 do ask_for(", "for i = 1, 0 do ask_for("),
    "a_hold_ends_a_wait": ("let_go.lua", "if redis.call('HEXISTS', P .. 'waits', id) == 0 then", "if true then"),
    "a_wait_ends_a_hold": ("waiting.lua", "return redis.call('HEXISTS', P .. 'holds', id) == 0 and ", "return "),
    "answered_before_the_further_question": (
        "waiting.lua", "    redis.call('ZADD', P .. 'waits:' .. id, number, name)\n    ask_for",
        "    redis.call('ZADD', P .. 'waits:' .. id, 'NX', number, name)\n    ask_for",
    ),
    "forgets_a_waiter": ("waiting.lua", "redis.call('ZADD', P .. 'waiters:' .. id, 'NX', number, who)", ""),
    "told_with_any_number": (
        "receive.lua", "is_news = asked and tonumber(asked) == tonumber(ARGV[at + 3])", "is_news = asked",
    ),
    "told_while_it_runs": ("waiting.lua", "    or claim_of(P, id) ~= nil", ""),
    "told_though_it_is_dead": (
        "waiting.lua", " or redis.call('HEXISTS', P .. 'morgue:payloads', id) == 1", "",
    ),
    "told_though_it_is_queued": (
        "waiting.lua", "return redis.call('HEXISTS', P .. 'payloads', id) == 1 or", "return",
    ),
    "lets_go_after_the_first": (
        "waiting.lua", "return redis.call('EXISTS', P .. 'waits:' .. id) == 0 and forget_waits", "return forget_waits",
    ),
    "is_not_held": ("waiting.lua", "redis.call('ZADD', P .. 'held', 'NX', stamp(now_us()), id)", ""),
    "one_end_is_that_of_all_batches": (
        "wait.lua", "if ARGV[4] == '1' and wait_no_more(P, id, batch) then",
        "if ARGV[4] == '1' then redis.call('UNLINK', P .. 'waits:' .. id) redis.call('ZREM', P .. 'held', id)",
    ),
    "waits_for_what_comes_late_of_a_batch": (
        "wait.lua", "local is_waiting = redis.call('ZSCORE', P .. 'waits:' .. id, batch)",
        "local is_waiting = redis.call('HEXISTS', P .. 'waits', id) == 1",
    ),
    "tells_some_waiters": ("waiting.lua", "if #found < most then", "if true then"),
}  # fmt: skip


#: Mutants that no scene finds, and the first history that does.
FIRST = {
    "received_twice": 6, "letters_left_behind": 0, "heard_left_behind": 6, "waits_left_behind": 10,
    "undone_without_waiting": 83, "revived_without_waiting": 1, "back_and_not_asked": 38, "a_hold_ends_a_wait": 5,
    "a_wait_ends_a_hold": 48,
}  # fmt: skip
#: Those that none of two hundred finds since questions have numbers: searched for anew, until it is noted where.
SOUGHT = {"taken_along_while_they_move", "answered_before_the_further_question"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rare] if name in SOUGHT else []) for name in MUTANTS]
)
def test_a_mutant_is_found_out(app: Lowkiq, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file, safeguard, instead = MUTANTS[name]
    mutants.replace(file, safeguard, instead, monkeypatch)
    monkeypatch.setattr(following_world, "PATIENCE", 2.0)
    tries: list[Callable[[], None]] = [partial(history, app, FIRST[name])] if name in FIRST else []
    tries += [partial(scene, app) for scene in SCENES]
    tries += [partial(history, app, seed) for seed in range(200)]
    mutants.find_out(tries, app.redis().flushdb)
