"""Mutants: Lowkiq with one safeguard taken out of a script. A test of the promise that one of them passes is void."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import pytest
from redis.exceptions import ResponseError

from lowkiq.errors import LowkiqError
from lowkiq.queue import scripts
from tests.mutation.table import once


class Mutant(NamedTuple):
    """A safeguard in a script's file, and what stands in its place."""

    file: str
    safeguard: str
    instead: str
    #: What the model test finds broken: an invariant of the design, or anything that was expected of the shard.
    breaks: str = ""
    #: It shows only where handlers decide what becomes of their jobs.
    is_of_decisions: bool = False


def _unhindered(side: str, word: str, breaks: str = "") -> Mutant:
    """A row of includes/sides.lua without one of its words."""
    return Mutant("sides.lua", side, side.replace(word, ""), breaks)


def _of_decisions(safeguard: str, instead: str, breaks: str = "", file: str = "settle.lua") -> Mutant:
    return Mutant(file, safeguard, instead, breaks, is_of_decisions=True)


MUTANTS = {
    "no_fence": Mutant("shard.lua", "if owner[1] ~= node or owner[2] ~= epoch then", "if false then", "I1"),
    "no_fence_of_claims": Mutant("away.lua", "if owner[1] == node and owner[2] == epoch then", "if true then", "I1"),
    "fence_without_epoch": Mutant("shard.lua", "owner[1] ~= node or owner[2] ~= epoch", "owner[1] ~= node", "I1"),
    "renew_any_epoch": Mutant(
        "renew.lua", "owners[i][1] == ARGV[1] and owners[i][2] == ARGV[i + 2]", "owners[i][1] == ARGV[1]", "I1"
    ),
    "epoch_stands": Mutant("epochs.lua", "math.max(epoch + 1, now + lead)", "math.max(epoch, now + lead)", "I2"),
    "epoch_of_the_clock": Mutant("epochs.lua", "math.max(epoch + 1, now + lead)", "now", "I2"),
    # After a failover that has lost a lease: the next one must not get the same epoch once more.
    "failover_loses_the_lead": Mutant("acquire.lua", "if lead then", "if false then"),
    "failover_of_a_lead_without_steps": Mutant("epochs.lua", " + math.floor(now / STEPS)", ""),
    "failover_of_a_lead_that_stands": Mutant(
        "epochs.lua", "math.floor((now - since) / 2)", "math.floor(now - since)", "I2"
    ),
    "failover_of_a_lead_for_ever": Mutant("epochs.lua", "math.floor((now - since) / 2)", "0"),
    "acquire_held": Mutant("acquire.lua", "if is_foreign and rest > 0 and not ran then", "if false then"),
    "acquire_keeps_the_claim": Mutant(
        "acquire.lua", "restore_claim(P, due_by, claim, doomed, 'restored', pauses)", "0, 0"
    ),
    "merge_overwrites": Mutant(
        "pushing.lua",
        "payloads_add(P .. 'payloads', id, score, payload)",
        "redis.call('HSET', P .. 'payloads', id, score .. ':' .. payload)",
        "I3",
    ),
    "leftovers_lost": Mutant("claim.lua", "stays[id] = true", "stays[id] = nil"),
    "exhausted_drops_the_rest": Mutant(
        "settle.lua", "requeue(P, id, '*', due_after(0), -1)", "redis.call('UNLINK', P .. 'claim:' .. id)", "I3"
    ),
    "release_forgets": Mutant(
        "settle.lua", "if held then requeue(P, id, held, due or perform_in, retry_count) end", ""
    ),
    "absorb_overwrites": Mutant(
        "payloads.lua", "redis.call('ZADD', zset, which_of_equal(key, id), score, payload)", "", "I3"
    ),
    "claim_twice": Mutant(
        "claim.lua",
        "local has_others = has_rare and redis.call('EXISTS', P .. 'claim', P .. 'asides') > 0",
        "local has_others = false",
        "I4",
    ),
    "claims_beside_the_unknown": Mutant("claim.lua", "if not is_known then", "if false then", "I4"),
    # A claim that is to take one looks on past what may not start, but takes one.
    "passes_by_and_takes_more": Mutant(
        "passing.lua", "return find(P, now, math.min(left, limit), ids)", "return find(P, now, left, ids)"
    ),
    "claims_what_runs": Mutant("passing.lua", "if why.running[id] then stopped[id] = why.running[id] end", "", "I4"),
    "parks_without_its_time": Mutant("parking.lua", "behind[i * 2] = id, due[i]", "behind[i * 2] = id, '0'"),
    "parks_in_compact": Mutant(
        "parking.lua",
        "if #full > 0 then redis.call('HSET', P .. 'payloads', unpack(full)) end",
        "",
        "the record of a parked",
    ),
    "aside_and_still_open": Mutant(
        "claim.lua",
        "not (has_others or has_held or has_spaced or ARGV[10])",
        "not (has_held or has_spaced or ARGV[10])",
        "an offer",
    ),
    "closed_and_open": Mutant("claim.lua", " or ARGV[10])", ")", "closed"),
    "closed_and_open_the_quick_way": Mutant("quick_claim.lua", "if ARGV[10] then", "if false then", "closed"),
    "forgets_what_waits": Mutant("settle.lua", "  unpark(P, now, ids)\n", "", "what is parked"),
    "forgets_what_waits_behind_the_failed": Mutant(
        "endings.lua", "if is_any_parked(P) then redis.call('HDEL', P .. 'behind', id) end", "", "parked is what"
    ),
    "forgets_what_waits_behind_the_buried": Mutant(
        "endings.lua",
        "      unpark(P, now, {id})\n      forget(P, id)\n      tell",
        "      forget(P, id)\n      tell",
        "what is parked",
    ),
    "unparks_while_it_runs": Mutant(
        "perform_now.lua", "tonumber(perform_in) < tonumber(NEVER) and ", "", "parked is what"
    ),
    "parked_ahead_of_the_clock": Mutant(
        "parking.lua", "tonumber(found[i]) > now / 1000000 and stamp(now) or found[i]", "found[i]"
    ),
    "settles_another_claim": Mutant(
        "claimed.lua",
        "number = number, key = P .. 'aside:' .. number, last_due",
        "number = number, key = P .. 'claim', last_due",
    ),
    "restores_one_claim": Mutant(
        "claimed.lua", "if redis.call('EXISTS', P .. 'claim') == 1 then\n    local", "if #asides == 0 then\n    local"
    ),
    "releases_another_claim": Mutant(
        "release.lua", "find_claim(P, ARGV[3], last_claim)", "find_claim(P, last_claim, last_claim)"
    ),
    "aside_of_other_times": Mutant("claimed.lua", "redis.call('HGET', P .. 'owner', 'last_due') or '0')", "'0')"),
    "dropped_and_still_parked": Mutant(
        "endings.lua",
        "  redis.call('HDEL', P .. 'behind', id)\n  redis.call('HDEL', P .. 'debounced', id)",
        "  redis.call('HDEL', P .. 'debounced', id)",
        "parked is what",
    ),
    "away_forever": Mutant("away.lua", "if lease and (ran or lease.ends <= clock) then", "if false then", "I1"),
    "away_and_taken_back": Mutant("away.lua", "(ran or lease.ends <= clock)", "true", "I1"),
    "away_taken_back_by_who_comes": Mutant("acquire.lua", "    if not claim.epoch then\n", "    if true then\n", "I1"),
    "away_and_given_back": Mutant("release.lua", "elseif run[claim.number] then", "elseif false then"),
    "away_and_released_twice": Mutant("release.lua", "    if claim.epoch then\n", "    if false then\n", "I1"),
    "away_keeps_its_number": Mutant(
        "away.lua", "if claim.key ~= P .. 'claim' then redis.call('HDEL', P .. 'asides', claim.number) end", ""
    ),
    "away_without_its_time": Mutant("away.lua", "claim.last_due or owner[2] or '0')", "claim.last_due or '0')"),
    "away_and_not_alone": Mutant("away.lua", "alone = number == claim.number and alone or ''", "alone = ''"),
    "away_leaves_its_lease": Mutant(
        "claimed.lua", "if claim.epoch then redis.call('HDEL', P .. 'away', claim.name) end", ""
    ),
    "away_unknown_to_its_owner": Mutant("claim.lua", "claim.epoch or string.find", "string.find"),
    "away_and_claimed_again": Mutant(
        "claimed.lua", "for i = 1, #asides, 2 do\n    local name", "for i = 1, 0 do\n    local name"
    ),
    "away_and_nobody_rung": Mutant(
        "settle.lua",
        "if oldest and tonumber(oldest) < tonumber(NEVER) then ring(P, oldest * 1000000, now) end",
        "",
    ),
    "away_and_the_owner_sleeps": Mutant(
        "settle.lua", "if not (claim and claim.epoch) then return", "if true then return"
    ),
    "away_and_its_cancels_forgotten": Mutant(
        "acquire.lua",
        "if are_away == 0 then redis.call('UNLINK', P .. 'cancels') end",
        "redis.call('UNLINK', P .. 'cancels')",
    ),
    "away_and_cancelled_by_the_owners_epoch": Mutant("cancelling.lua", "(claim.epoch or epoch)", "epoch"),
    "away_and_its_checkpoints_forgotten": Mutant(
        "acquire.lua",
        "if are_away == 0 and redis.call('EXISTS', P .. 'due') == 0 then",
        "if redis.call('EXISTS', P .. 'due') == 0 then",
    ),
    "away_left_and_its_death_counted": Mutant(
        "away.lua", "if lease.left == '0' then doomed", "if true then doomed", "I7"
    ),
    "away_and_rests": Mutant("rest.lua", "local stays = claim.epoch or", "local stays ="),
    "away_unkept": Mutant("renew_away.lua", "    keep_away(P, claim.name, claim.lease)\n", ""),
    "away_of_a_clock_ahead": Mutant(
        "away.lua", "if lease and not ran and lease.ends > clock + lease.ttl * 1000000 then", "if false then"
    ),
    "deaths_of_the_newest_claim": Mutant("deaths.lua", "if claim == number then jobs", "if false then jobs", "I7"),
    "claimed_of_an_older_layout": Mutant("shard.lua", "if not can_write_older then", "if false then", "I8"),
    "claim_late": Mutant("claim.lua", "if tonumber(number) <= last_claim then", "if false then"),
    "open_for_ever": Mutant(
        "claim.lua", "redis.call('HDEL', P .. 'owner', 'open')\nif tonumber(last_score)", "if tonumber(last_score)"
    ),
    "open_after_the_lease": Mutant("acquire.lua", "'alone', 'open', 'waiting'", "'alone', 'waiting'"),
    "open_after_its_end": Mutant(
        "release.lua", "restore_claim(P, now, claim, {})\n  redis.call('HDEL', P .. 'owner', 'open')", "0"
    ),
    "handed_to_the_busy": Mutant("push.lua", "may_go and redis.call('EXISTS', bell .. ':idle') == 1", "may_go", "I1"),
    "release_keeps_the_number": Mutant("release.lua", "set_aside(P, last_claim, ARGV[3])", ""),
    "release_any_claim": Mutant("release.lua", "ARGV[4] == 'lease' and last_claim <= number", "ARGV[4] == 'lease'"),
    "release_tells_nobody": Mutant("release.lua", "wanted or ''}", "''}"),
    "settle_any_claim": Mutant(
        "settle.lua",
        "held_claim(P, ARGV[1], ARGV[2], ARGV[3])",
        "held_claim(P, ARGV[1], ARGV[2], redis.call('HGET', P .. 'owner', 'claim') or ARGV[3])",
        "I4",
    ),
    "counts_what_was_asked": Mutant(
        "settle.lua",
        "  if not held then return end\n  if held == '*' then redis.call('UNLINK', P .. 'claim:' .. id) end",
        "",
    ),
    "settled_stays_in_the_claim": Mutant("settle.lua", "if has_changed then", "if false then"),
    "merge_moves_the_due_time": Mutant("push.lua", "'NX', ", ""),
    "known_ids_are_new": Mutant(
        "pushing.lua",
        "if bulk_zadd(P .. 'due', due, count * 2) < count then return false end",
        "bulk_zadd(P .. 'due', due, count * 2)",
    ),
    "old_jobs_by_their_last_bits": Mutant("claim.lua", "taken > old and is_compact(record)", "is_compact(record)"),
    "due_times_untold": Mutant("claim.lua", "'claim', number, 'last_due', last_due_text", "'claim', number"),
    "claim_highest": Mutant("claim.lua", "redis.call('ZRANGE', source,", "redis.call('ZREVRANGE', source,", "I6"),
    "scores_of_the_clock": Mutant(
        "pushing.lua", "last_score = last_score < now and now or last_score + 1", "last_score = now"
    ),
    "merge_takes_any_score": Mutant(
        "payloads.lua",
        "redis.call('ZADD', key .. ':' .. id, which_of_equal(key, id), score, payload)",
        "redis.call('ZADD', key .. ':' .. id, score, payload)",
    ),
    "merge_takes_any_score_of_one": Mutant(
        "payloads.lua", "if is_higher ~= (which_of_equal(key, id) == 'GT') then score = held_score end", ""
    ),
    "last_word_forgotten": Mutant("rules.lua", "return is_lowest and 'LT' or 'GT'", "return 'LT'"),
    "last_word_of_all": Mutant("rules.lua", "return is_lowest and 'LT' or 'GT'", "return 'GT'"),
    "last_word_of_the_dead": Mutant("rules.lua", "if not P then return 'GT' end", "if not P then return 'LT' end"),
    "checkpoint_of_the_newest": Mutant(
        "checkpoint.lua", "'claim:' .. ARGV[4], 0, 0)[1]", "'claim:' .. ARGV[4], -1, -1)[1]"
    ),
    "exhausted_buries_the_highest": Mutant(
        "settle.lua", "redis.call('ZPOPMIN', P .. 'claim:' .. id)", "redis.call('ZPOPMAX', P .. 'claim:' .. id)"
    ),
    "deaths_not_counted": Mutant(
        "acquire.lua",
        "doomed, pauses = count_death(P, claim, ran or '', max_crashes, due_by)",
        "doomed = {}",
        "I7",
    ),
    "abandoned_is_dead": Mutant(
        "acquire.lua",
        "if is_foreign and not abandoned then\n        doomed",
        "if is_foreign then\n        doomed",
        "I7",
    ),
    "one_death_more": Mutant("deaths.lua", "died >= max_crashes", "died > max_crashes", "I7"),
    "deaths_forgotten_in_hand": Mutant(
        "endings.lua", "if not claim_of(P, id) then forget(P, id) end", "forget(P, id)", "I7"
    ),
    "suspects_among_others": Mutant("claim.lua", "count, crowds = part_suspects(P, ids, count)", "crowds = 1", "I7"),
    "suspects_behind_others": Mutant("claim.lua", "not crowds[taken + 1]", "true", "I7"),
    "crowds_count": Mutant(
        "deaths.lua", "local crowds = add_death(P, 'crowds', id)", "local crowds = add_death(P, 'crashes', id)", "I7"
    ),
    "apart_is_nobody": Mutant("deaths.lua", ":(%d+)(a?)$')", ":(%d+)$')", "I7"),
    "suspected_at_once": Mutant("deaths.lua", "redis.call('HEXISTS', P .. 'crashes', id) == 0", "false", "I7"),
    "crashes_once_more": Mutant("settle.lua", "died >= tonumber(max_crashes)", "died > tonumber(max_crashes)", "I7"),
    "buried_untold": Mutant("endings.lua", "      tell_of_burial(P, id)\n", ""),
    "crashed_untold": Mutant("settle.lua", "  tell_of_burial(P, id)\n", ""),
    "crashes_uncounted": Mutant("settle.lua", "P .. 'crashes', id)) or 0) + 1", "P .. 'crashes', id)) or 0)", "I7"),
    "tried_without_pause": Mutant("endings.lua", "pauses and pauses[id] or perform_in", "perform_in"),
    "buried_in_a_crowd": Mutant(
        "deaths.lua", "if apart == '' and alone == claim.number .. ' ' .. id then", "if true then", "I7"
    ),
    "alone_in_any_claim": Mutant(
        "deaths.lua", "alone == claim.number .. ' ' .. id", "string.match(alone or '', ' (.*)') == id", "I7"
    ),
    "alone_after_the_lease": Mutant("acquire.lua", "'claim', 'alone',", "'claim',"),
    "alone_among_others": Mutant("isolate.lua", "  redis.call('HDEL', P .. 'owner', 'alone')", ""),
    "isolates_any_claim": Mutant("isolate.lua", "if not claim then return 0 end", "claim = claim or {}"),
    "suspects_all_of_the_claim": Mutant("deaths.lua", "if jobs + after > count then", "if jobs ~= 0 then", "I7"),
    "suspects_another_claim": Mutant("deaths.lua", "if claim == number then", "if true then", "I7"),
    "suspects_nobody": Mutant("deaths.lua", "if ran == '' then jobs = count end", "", "I7"),
    "crowds_not_forgotten": Mutant("claimed.lua", "redis.call('HDEL', P .. 'crowds', ...)", "", "I7"),
    "any_layout_for_one": Mutant("push.lua", "meta[1] == ARGV[1] and", ""),
    "compact_without_fence": Mutant("quick_claim.lua", "owner[1] == ARGV[1] and owner[2] == ARGV[2] and", "", "I1"),
    "compact_claimed_late": Mutant("quick_claim.lua", " and tonumber(owner[3] or 0) < tonumber(number)", ""),
    "compact_claimed_twice": _unhindered("'claim', 'list', hinders = 'claim acquire'", "claim "),
    "compact_claimed_beside": _unhindered("'asides', 'hash', hinders = 'claim finish acquire emptiness'", "claim "),
    "compact_of_any_layout": Mutant("quick_claim.lua", "meta[1] == ARGV[4] and", "", "I8"),
    "compact_times_untold": Mutant("quick_claim.lua", "number, 'last_due', last_due)", "number)"),
    "compact_taken_with_the_rest": Mutant(
        "quick_claim.lua",
        "if taken == queued and redis.call('HLEN', P .. 'payloads') == queued then",
        "if true then",
    ),
    "compact_and_still_open": Mutant(
        "quick_claim.lua", "redis.call('HDEL', P .. 'owner', 'open')\n      redis", "redis"
    ),
    "acked_of_any_claim": Mutant("settle.lua", " and owner[3] == ARGV[3]", ""),
    "acked_and_not_forgotten": _unhindered("'errors', 'hash', hinders = 'settle parting'", "settle "),
    "finishes_over_the_queue": _unhindered("'due', 'zset', hinders = 'finish emptiness'", "finish ", "I4"),
    "finishes_beside": _unhindered("'asides', 'hash', hinders = 'claim finish acquire emptiness'", "finish ", "I4"),
    "finishes_what_settle_would_not": Mutant("finish.lua", "HINDERS.settle, ", ""),
    "finishes_another_claim": Mutant("finish.lua", " or owner[3] ~= ARGV[3]", "", "I4"),
    "finishes_without_fence": Mutant("finish.lua", "owner[1] ~= ARGV[1] or owner[2] ~= ARGV[2] or ", "", "I1"),
    "finishes_of_any_epoch": Mutant("finish.lua", "owner[2] ~= ARGV[2] or ", "", "I1"),
    "finished_and_still_suspected": _unhindered("'crashes', 'hash', hinders = 'settle parting'", "settle ", "I7"),
    "finishes_without_its_count": Mutant(
        "finish.lua", "redis.call('HINCRBY', P .. 'meta', 'processed', acked)", "acked = 0 + acked", "I5"
    ),
    "finished_and_opens_the_last": Mutant("finish.lua", "ARGV[2] .. ' ' .. ARGV[4]", "ARGV[2] .. ' ' .. ARGV[3]", "I4"),
    "any_layout": Mutant("shard.lua", "if known and known ~= layout then", "if false then", "I8"),
    "any_older_layout": Mutant("shard.lua", "if shards_count ~= our_shards_count then", "if false then", "I8"),
    "any_newer_layout": Mutant("shard.lua", "if version > our_version then", "if false then", "I8"),
    "no_fold": Mutant("payloads.lua", "if count > 1 then return end", "if true then return end", "one payload belongs"),
    "score_moves_with_the_due_time": Mutant(
        "perform_now.lua", "redis.call('HSET', P .. 'payloads', id, payloads_get(P .. 'payloads', id))", ""
    ),
    "lease_of_a_clock_set_back": Mutant("acquire.lua", "if ttl and rest > ttl then", "if false then"),
    "delay_is_a_time": Mutant("pushing.lua", "stamp(place + perform_in * 1000000)", "stamp(perform_in * 1000000)"),
    "cancels_nothing_that_runs": Mutant("cancel.lua", "  if claim then\n", "  if false then\n"),
    "cancels_in_no_epoch": Mutant("cancel.lua", "(claim.epoch or owner[2] or '') .. ' '", "'1 '"),
    "cancels_and_leaves_what_waits": Mutant("cancel.lua", "if is_queued then", "if is_queued and not claim then"),
    "cancelled_in_any_claim": Mutant(
        "cancelling.lua", "id) == (claim.epoch or epoch) .. ' ' .. claim.number", "id) ~= false", "I3"
    ),
    "cancelled_in_any_epoch": Mutant(
        "cancelling.lua",
        "redis.call('HGET', P .. 'cancels', id) == (claim.epoch or epoch) .. ' ' .. claim.number",
        "string.match(redis.call('HGET', P .. 'cancels', id) or '', ' (.*)') == claim.number",
        "I3",
    ),
    "cancelled_and_restored": Mutant(
        "endings.lua", "if is_cancelled(P, claim, id) then", "if false then", "a cancelled run came back"
    ),
    "cancelled_and_settled_as_others": Mutant(
        "settle.lua", "if action == ack or not drop_cancelled(ARGV[i]) then", "if true then", "a cancelled run"
    ),
    "cancelled_though_done": Mutant("settle.lua", "if action == ack or not drop", "if not drop"),
    "cancelled_and_still_parked": Mutant("cancelling.lua", "  unpark(P, now, {id})\n", "", "what is parked"),
    "cancelled_and_still_suspected": Mutant("cancelling.lua", "now, {id})\n  forget(P, id)", "now, {id})", "I7"),
    "cancelled_in_part": Mutant(
        "cancelling.lua",
        "  if held == '*' then redis.call('UNLINK', P .. 'claim:' .. id) end\n  unpark",
        "  unpark",
        "zsets that no record names",
    ),
    "restored_and_still_cancelled": Mutant("endings.lua", "  unmark(P, ids)\n", "", "a cancelled run is over"),
    "settled_and_still_cancelled": Mutant("settle.lua", "  unmark(P, over)\n", "", "a cancelled run is over"),
    "acked_and_still_cancelled": _unhindered("'cancels', 'hash', hinders = 'settle parting acquire'", "settle "),
    "acked_and_still_kept": _unhindered(
        "'checkpoints', 'hash', hinders = 'settle parting acquire'", "settle ", "a checkpoint of nothing"
    ),
    "marks_outlive_the_lease": Mutant(
        "acquire.lua", "if are_away == 0 then redis.call('UNLINK', P .. 'cancels') end", ""
    ),
    "renews_and_tells_of_no_cancel": Mutant("renew.lua", "kept[i] = kept[i] + 4", "kept[i] = kept[i] + 0"),
    "keeps_without_fence": Mutant("checkpoint.lua", "if refusal then return refusal end", "", "I1"),
    "keeps_for_what_is_over": Mutant(
        "checkpoint.lua", "if not record then return 0 end", "record = record or '0:0:0:'", "a checkpoint of nothing"
    ),
    "kept_for_ever": Mutant(
        "claimed.lua", "redis.call('HDEL', P .. 'checkpoints', ...)", "", "a checkpoint of nothing"
    ),
    "kept_and_not_given_back": Mutant("claim.lua", "if record and checkpoints[i] then", "if false then"),
    "pushed_again": Mutant("senders.lua", "if last == number then", "if false then", "I5"),
    "pushed_by_who_has_given_up": Mutant("senders.lua", "tonumber(last) > tonumber(number) and 'OLD'", "nil", "I5"),
    "pushed_too_late": Mutant("pushing.lua", "if said or clock > tonumber(number) then", "if said then", "I5"),
    "pushed_and_forgotten": Mutant("push.lua", "(meta[4] or 0) + 1), sender, number)", "(meta[4] or 0) + 1))"),
    "apart_again": Mutant("push_apart.lua", "  if said then\n", "  if false then\n", "I5"),
    "apart_too_late": Mutant("push_apart.lua", "elseif now <= tonumber(number) and", "elseif", "I5"),
    "apart_of_any_layout": Mutant("push_apart.lua", "meta[1] ~= ARGV[1] or ", "", "I8"),
    "apart_while_the_clock_is_back": Mutant("push_apart.lua", " or meta[3]", ""),
    "apart_by_any_clock": Mutant("push_apart.lua", " or last_score - now >= SET_BACK", ""),
    "apart_rings_nobody": Mutant(
        "push_apart.lua", "if redis.call('HGET', P .. 'owner', 'waiting') then return 0 end", ""
    ),
    "apart_moves_the_due_time": Mutant("push_apart.lua", "'NX', ", ""),
    "apart_overwrites": Mutant("push_apart.lua", "== 0 then break end", "== 2 then break end"),
    "apart_goes_on": Mutant(
        "push_apart.lua",
        "break end\n    redis.call('HSET', payloads, ARGV[word], compact(score, ARGV[word + 1]))\n"
        "    taken[#taken + 1], score, done = 1, score + 1, done + 1",
        "taken[#taken + 1] = 0 else redis.call('HSET', payloads, ARGV[word], compact(score, ARGV[word + 1]))\n"
        "    taken[#taken + 1], score, done = 1, score + 1, done + 1 end",
    ),
    "apart_at_one_time": Mutant("push_apart.lua", "1, score + 1, done + 1", "1, score, done + 1"),
    "apart_by_the_clock_alone": Mutant("push_apart.lua", "math.max(now, last_score + 1)", "now"),
    "apart_counted_once": Mutant("push_apart.lua", "pushed + done", "pushed + 1"),
    "pushed_without_tags": Mutant("pushing.lua", "add_tags(P, 'tags', id, tags)", ""),
    "compact_claimed_without_tags": _unhindered("'tags', 'hash', hinders = 'claim acquire'", "claim ", "tags"),
    "claimed_tags_stay_queued": Mutant("claim.lua", "redis.call('HDEL', P .. 'tags', some[i])", "", "tags"),
    "left_behind_without_tags": Mutant("claim.lua", "if not stays[some[i]] then redis", "if true then redis"),
    "tagged_and_not_claimed_so": Mutant("claim.lua", "redis.call('HSET', P .. 'claimed_tags', some[i], tags)", ""),
    "acked_and_still_tagged": _unhindered(
        "'claimed_tags', 'hash', hinders = 'settle parting acquire'", "settle ", "tags"
    ),
    "done_with_and_still_tagged": Mutant("claimed.lua", "  drop_tags(P, 'claimed_tags', {...})\n", "", "tags"),
    "requeued_without_tags": Mutant("endings.lua", "  copy_tags(P, 'claimed_tags', 'tags', id)\n", ""),
    "dropped_and_still_tagged": Mutant("endings.lua", "  drop_tags(P, 'tags', {id})\n", "", "tags"),
    "killed_without_tags": Mutant("endings.lua", "copy_tags(P, 'claimed_tags', 'morgue:tags', id)", ""),
    "exhausted_without_tags": Mutant(
        "settle.lua", "copy_tags(P, 'claimed_tags', 'morgue:tags', id)\n  local score", "local score"
    ),
    "buried_without_tags": Mutant("bury.lua", "copy_tags(P, 'tags', 'morgue:tags', id)", ""),
    "revived_without_tags": Mutant("revive.lua", "copy_tags(P, 'morgue:tags', 'tags', id)", ""),
    "revived_and_still_tagged": Mutant("revive.lua", "drop_tags(P, 'morgue:tags', {id})", "", "tags"),
    "tags_take_the_place_of_others": Mutant("tags.lua", "ipairs({before, text})", "ipairs({text})"),
    "contexts_searched_for": Mutant("tags.lua", "string.match(text or '', '^[^\\1]*')", "text or ''", "tags"),
    "contexts_take_the_place_of_others": Mutant("tags.lua", "ipairs({text, before})", "ipairs({text})"),
    "contexts_without_end": Mutant("tags.lua", " and #latest < MOST_CONTEXTS", ""),
    "first_contexts_stay": Mutant("tags.lua", "ipairs({text, before})", "ipairs({before, text})"),
    "tags_known_in_one_place_only": Mutant("tags.lua", "if not has[tag] and redis", "if redis", "tags"),
    "tags_counted_for_ever": Mutant(
        "tags.lua",
        "redis.call('ZINCRBY', P .. 'tag_counts', -1, tag)",
        "redis.call('ZSCORE', P .. 'tag_counts', tag)",
        "tags",
    ),
    "put_away_and_not_kept": Mutant("kept.lua", "redis.call('HSET', kept, id, table.concat(words))", "", "I3"),
    "put_away_for_ever": Mutant("kept.lua", "redis.call('EXPIRE', kept, seconds)", "", "kept for ever"),
    "put_away_over_another": Mutant("put_away.lua", " and redis.call('HEXISTS', kept, ARGV[i]) == 0", "", "I3"),
    "put_away_with_the_deaths_of_a_run": Mutant("put_away.lua", "not is_dead and not claim_of(P, id)", "not is_dead"),
    "put_away_and_never_suspected": Mutant("put_away.lua", "is_alone and read('crashes', id)", "false"),
    "put_away_as_parked": Mutant("put_away.lua", "not is_dead and read('behind', id) or ", ""),
    "put_back_twice": Mutant("put_back.lua", "redis.call('HDEL', kept, ARGV[i])", "", "I3"),
    "put_back_over_what_was_pushed": Mutant(
        "put_back.lua", "payloads_add(payloads, id, split(held))", "redis.call('HSET', payloads, id, held)", "I3"
    ),
    "put_back_to_what_runs": Mutant("put_back.lua", "if running[id] then return end", "", "I7"),
    "put_back_and_still_parked": Mutant("put_back.lua", "redis.call('HDEL', P .. 'behind', id)", "", "parked is what"),
    "put_back_and_rings_nobody": Mutant("put_back.lua", "if earliest < math.huge then", "if false then"),
    "put_back_without_tags": Mutant("put_back.lua", "if tags then add_tags", "if false then add_tags"),
    "paused_and_claimed": Mutant(
        "claim.lua",
        "if has_rare and redis.call('EXISTS', P .. 'paused', P .. 'feeders') > 0 then",
        "if false then",
        "paused",
    ),
    "paused_and_claimed_the_quick_way": _unhindered(
        "'paused', 'string', hinders = 'claim finish acquire'", "claim ", "paused"
    ),
    "paused_and_finished": _unhindered("'paused', 'string', hinders = 'claim finish acquire'", "finish ", "paused"),
    "paused_and_still_open": Mutant("pause.lua", "redis.call('HDEL', P .. 'owner', 'open')", "", "paused"),
    "paused_once_more": Mutant("pause.lua", "since = since or stamp(now)", "since = stamp(now)"),
    "paused_and_not_rung": Mutant("resume.lua", "if oldest and oldest ~= 'inf' then ring", "if false then ring"),
    "paused_and_at_rest_for_ever": Mutant("resume.lua", "redis.call('HDEL', P .. 'owner', 'rests')", "", "paused"),
    "paused_and_at_rest_without_a_word": Mutant("pausing.lua", " or owner[4] == owner[2]", " or owner[2] ~= nil"),
    "paused_and_at_rest_while_a_lease_lasts": Mutant(
        "pausing.lua", "(tonumber(owner[3]) or 0) * 1000000 <= now", "true"
    ),
    "paused_and_never_at_rest": Mutant(
        "acquire.lua", "lease[#lease + 2] = 'rests', epoch", "lease[#lease + 2] = 'ttl', ARGV[3]"
    ),
    "paused_and_nobody_told": Mutant("renew.lua", "kept[i] = kept[i] + 8", "kept[i] = kept[i] + 0"),
    "paused_and_told_for_ever": Mutant("renew.lua", "has_rare and owners[i][4] ~= ARGV[i + 2]", "has_rare"),
    "paused_and_rests_over_a_later_claim": Mutant(
        "rest.lua", "if not claim.epoch and tonumber(claim.number) > tonumber(ARGV[3]) then return 0 end", ""
    ),
    "paused_and_rests_over_the_unknown": Mutant("rest.lua", "restore_claim(P, now, claim, {})", "now = now", "paused"),
    "paused_and_rests_without_fence": Mutant("rest.lua", "if refusal then return refusal end", "", "I1"),
    "paused_and_gives_back_what_runs": Mutant(
        "rest.lua", "claim.epoch or string.find(ARGV[4], ' ' .. claim.number .. ' ', 1, true)", "claim.epoch"
    ),
    "held_and_claimed": Mutant("passing.lua", "why.has_held and held_of(P, ids, count) or {}", "{}", "held"),
    "held_and_claimed_the_quick_way": _unhindered("'held', 'zset', hinders = 'claim finish'", "claim ", "held"),
    "held_and_finished": _unhindered("'held', 'zset', hinders = 'claim finish'", " finish", "held"),
    "held_and_opened": Mutant(
        "claim.lua", "not (has_others or has_held or has_spaced", "not (has_others or has_spaced", "held"
    ),
    "held_and_still_open": Mutant("hold.lua", "redis.call('HDEL', P .. 'owner', 'open')", "", "held"),
    "held_and_unparked": Mutant("parking.lua", "if found[i] and not held[i] then", "if found[i] then"),
    "held_and_parked_with_the_rest": Mutant("holding.lua", "held[ids[i]] = since[i] or nil", "held[ids[i]] = true"),
    "held_since_the_last_time": Mutant("hold.lua", "'NX', since", "since"),
    "held_and_parked_for_ever": Mutant("holding.lua", "unpark(P, now, ids)", ""),
    "held_and_retried": _of_decisions(
        "redis.call('ZREM', P .. 'blocked', id)",
        "redis.call('ZREM', P .. 'blocked', id)\n      redis.call('ZREM', P .. 'held', id)\n"
        "      redis.call('HDEL', P .. 'holds', id)",
        "held",
        file="unblock.lua",
    ),
    "held_and_unblocked": _of_decisions(
        "unpark(P, now, ids)",
        "unpark(P, now, ids)\n"
        "  for _, id in ipairs(ids) do redis.call('ZADD', P .. 'due', 'XX', 'LT', stamp(now), id) end",
        "blocked is",
        file="holding.lua",
    ),
    "held_and_nobody_rung": Mutant("holding.lua", "if earliest < math.huge then ring", "if false then ring"),
    "scored_at_one_time": Mutant(
        "pushing.lua", "queue(id, stamp(place), place, score", "queue(id, stamp(now), now, score"
    ),
    "delayed_at_one_time": Mutant(
        "pushing.lua", "stamp(place + perform_in * 1000000)", "stamp(now + perform_in * 1000000)"
    ),
    "places_ahead_of_a_clock_set_back": Mutant(
        "pushing.lua", "was_set_back and now + number - 1 or last_score", "last_score"
    ),
    "failed_at_one_time": Mutant("settle.lua", "place = place + 1", "place = place + 0"),
    "revived_among_the_pushed": Mutant("shard.lua", "return last_score == now and now + 1 or now", "return now"),
    "revived_without_its_error": Mutant("revive.lua", "redis.call('HSET', P .. 'errors', id, error)", ""),
    "revived_with_an_older_error": Mutant("revive.lua", " and redis.call('HEXISTS', P .. 'errors', id) == 0", ""),
    "buried_over_its_error": Mutant("bury.lua", " or redis.call('HGET', P .. 'morgue:errors', id)", ""),
    "dead_and_newer_unknown": Mutant("settle.lua", "  note_newer(P, id, score, left)\n", ""),
    "killed_and_newer_unknown": Mutant("endings.lua", "      note_newer(P, id, score)\n", ""),
    "revived_and_still_newer": Mutant("revive.lua", "redis.call('HDEL', P .. 'morgue:newer', id)", "", "newer than"),
    "deleted_and_still_newer": Mutant(
        "endings.lua", "redis.call('HDEL', P .. 'morgue:newer', id)\n    drop", "drop", "newer than"
    ),
    "newer_than_what_is_newer": Mutant("endings.lua", "tonumber(known) ~= tonumber(score)", "false"),
    "newer_and_dead_as_well": Mutant(
        "endings.lua", "  elseif known then\n    redis.call('HDEL', P .. 'morgue:newer', id)\n", ""
    ),
    "behind_whatever_runs": Mutant("newer.lua", "tonumber(running[id]) > tonumber(dead[id])", "true", "behind newer"),
    "behind_what_waits": Mutant(
        "newer.lua", "not queued or tonumber(queued) > tonumber(newer)", "true", "behind newer"
    ),
    "snoozed_and_failed": _of_decisions(
        "requeue(P, id, held, due_after(delay), retry_count)\n  if kind == 'snoozed'",
        "requeue(P, id, held, due_after(delay), retry_count + 1)\n  if kind == 'snoozed'",
    ),
    "snoozed_and_due": _of_decisions(
        "local _, retry_count, held = take(id)\n  if not held then return end\n  requeue(P, id, held, due_after(delay)",
        "local at, retry_count, held = take(id)\n  if not held then return end\n  requeue(P, id, held, at",
    ),
    "snoozed_and_still_suspected": _of_decisions(
        "kind == 'snoozed' then acquit(P, id) else", "kind == 'snoozed' then else", "I7"
    ),
    "limited_and_throttled": _of_decisions("then acquit(P, id) else unspace(P, id) end", "then acquit(P, id) end"),
    "blocked_and_tried_again": _of_decisions(
        "requeue(P, id, held, NEVER, -1)", "requeue(P, id, held, due_after(0), -1)"
    ),
    "blocked_and_open": _of_decisions("'1e+30'", "'inf'", file="claimed.lua"),
    "blocked_and_never_since": _of_decisions(
        "redis.call('ZADD', P .. 'blocked', stamp(now), id)", "", "blocked is what"
    ),
    "blocked_and_still_suspected": _of_decisions("NEVER, -1)\n  acquit(P, id)", "NEVER, -1)", "I7"),
    "blocked_and_performed_now": _of_decisions(
        "tonumber(perform_in) < tonumber(NEVER) and ", "", file="perform_now.lua"
    ),
    "blocked_and_revived": _of_decisions("tonumber(at) < tonumber(NEVER)", "true", file="revive.lua"),
    "dropped_and_still_blocked": _of_decisions(
        "redis.call('ZREM', P .. 'blocked', id)\n  redis.call('HDEL'", "redis.call('HDEL'", "blocked is", "endings.lua"
    ),
    "retried_and_still_blocked": _of_decisions(
        "redis.call('ZREM', P .. 'blocked', id)", "", "blocked is", file="unblock.lua"
    ),
    "put_back_and_unblocked": _of_decisions("if not was_blocked then", "if true then", file="put_back.lua"),
    "put_back_and_never_since": _of_decisions(
        "if tonumber(at) == tonumber(NEVER) then redis", "if false then redis", "blocked is", "put_back.lua"
    ),
    "skips_the_newest": _of_decisions("ZPOPMIN", "ZPOPMAX", file="unblock.lua"),
    "skips_and_tells_its_error": _of_decisions("redis.call('HDEL', P .. 'errors', id)", "", file="unblock.lua"),
    "unblocks_any": _of_decisions("if is_blocked(P, id) then", "if true then", file="unblock.lua"),
    "discards_and_buries": _of_decisions("discard = discard", "discard = exhaust"),
    "discards_all": _of_decisions(
        "  split_off(id, held)\n  note(P, 'discarded'", "  let_go({id})\n  note(P, 'discarded'"
    ),
    "buries_the_oldest_of_all": _of_decisions("bury_all = bury_all", "bury_all = exhaust"),
    "buried_whole_without_tags": _of_decisions(
        "copy_tags(P, 'claimed_tags', 'morgue:tags', id)\n  claimed_into", "claimed_into"
    ),
    "buried_whole_and_not_let_go": _of_decisions("held)\n  let_go({id})\n  morgue_entry", "held)\n  morgue_entry"),
    "buried_whole_and_newer_unknown": _of_decisions("note_newer(P, id, score)", ""),
    "lanes_only": Mutant("turns.lua", "  lanes[#lanes + 1] = own\n", ""),
    "lane_of_an_earlier_tenant": Mutant(
        "lanes.lua", "if before[i] then leave_lane(P, before[i], {id}) end", "", "in lane"
    ),
    "lane_never_sleeps": Mutant(
        "turns.lua",
        "redis.call('ZADD', P .. 'lanes_later', first, tenant)\n  redis.call('ZREM'",
        "redis.call('ZREM'",
        "lanes",
    ),
    "lane_is_told_late": Mutant(
        "lanes.lua", "redis.call('ZADD', P .. 'lanes_later', first, tenant)\nend", "end", "lanes"
    ),
    "lane_keeps_what_was_taken": Mutant(
        "turns.lua", "    if not stays[id] then table.insert(gone[tenant], id) end\n", ""
    ),
    "lane_keeps_what_was_deleted": Mutant("endings.lua", "  drop_hint(P, id)\n", "", "in lane"),
    "lane_looked_for_twice": Mutant("turns.lua", "if met then return left_of(P, met, due_by, limit) end", ""),
    "lane_taken_from_the_front": Mutant("claim.lua", "if staying == 0 and not lanes then", "if staying == 0 then"),
    "lane_of_long_ago": Mutant("claim.lua", "old = lanes and count or redis", "old = redis"),
    "lane_without_the_requeued": Mutant("endings.lua", "  hint(P, id, perform_in)\n", "", "lanes"),
    "lane_without_the_parked": Mutant(
        "parking.lua", "  for i, id in ipairs(parked) do hint(P, id, due[i * 2 - 1]) end\n", "", "lanes"
    ),
    "lane_without_the_moved": Mutant("claim.lua", "  if lanes then lanes.move(P, moved) end\n", "", "lanes"),
    "lane_without_the_revived": Mutant("revive.lua", "      hint(P, id, stamp(place + touched))\n", "", "lanes"),
    "lane_without_the_performed_now": Mutant("perform_now.lua", "    hint(P, id, stamp(first + moved))\n", "", "lanes"),
    "lane_without_the_unblocked": _of_decisions(
        "      hint(P, id, stamp(first + moved))\n", "", "lanes", "unblock.lua"
    ),
    "lane_without_the_put_back": _of_decisions("    hint(P, id, at)\n", "", "lanes", "put_back.lua"),
    "lane_put_back_without_its_tenant": _of_decisions(
        "  if tenant then tenant_again(P, id, tenant) end\n", "", "", "put_back.lua"
    ),
    "lane_claimed_in_the_quick_way": _unhindered("'lanes', 'zset', hinders = 'claim emptiness'", "claim ", "in lane"),
    "lane_settled_in_the_quick_way": _unhindered("'tenants', 'hash', hinders = 'settle parting acquire'", "settle "),
    "lane_forgotten_by_the_dead": Mutant("lanes.lua", "if not due[i] and not dead[i] then", "if not due[i] then"),
    "lane_forgotten_by_the_queued": Mutant("lanes.lua", "if not due[i] and not dead[i] then", "if not dead[i] then"),
    "lane_remembered_for_ever": Mutant("settle.lua", "  forget_tenants(P, over)\n", ""),
    "lane_remembered_after_deletion": Mutant(
        "endings.lua", "    drop_tags(P, 'morgue:tags', {id})\n    forget_idle_tenant(P, id)\n", ""
    ),
    "fewer_keeps_the_latest": Mutant("fewer.lua", "tonumber(score) >= tonumber(earlier_score)", "true", "keep"),
    "fewer_keeps_the_earlier_of_equals": Mutant("fewer.lua", ">= tonumber(earlier_score)", "> tonumber(earlier_score)"),
    "fewer_keeps_the_lower_of_what_comes_back": Mutant(
        "fewer.lua", "if is_kept(keep, score, kept_score) then kept_score, kept = score, payload end\n  end", "end"
    ),
    "fewer_keeps_two_of_what_comes_back": Mutant(
        "endings.lua", "if not keep_with(P, id, held, P .. 'claim:' .. id) then", "if true then"
    ),
    "fewer_superseded_and_not_counted": Mutant(
        "fewer.lua", "redis.call('HINCRBY', P .. 'meta', 'superseded', gone)", "", "keep"
    ),
    "fewer_forgets_the_rule_with_a_run": Mutant("rules.lua", "if not held then gone", "if true then gone"),
    "fewer_rules_of_nothing": Mutant("claimed.lua", "  forget_rules(P, {...})\n", "", "a rule of nothing"),
    "fewer_rule_takes_the_other": Mutant("rules.lua", "if keep == '' then keep = kept or '' end", ""),
    "fewer_rule_is_for_ever": Mutant("rules.lua", "throttle == '0' and '' or throttle", "throttle"),
    "fewer_throttled_and_early": Mutant("fewer.lua", "if until_us > clock then", "if false then", "throttle"),
    "fewer_throttled_by_the_shards_time": Mutant("fewer.lua", "stamp(until_us + now - clock)", "stamp(until_us)"),
    "fewer_put_off_in_compact": Mutant(
        "fewer.lua", "if #full > 0 then redis.call('HSET', P .. 'payloads', unpack(full)) end", "", "such a job"
    ),
    "fewer_throttled_once": Mutant("fewer.lua", "redis.call('ZADD', P .. 'spaced', unpack(spaced))", ""),
    "fewer_throttled_for_as_long_as_the_clock_was_set_back": Mutant(
        "fewer.lua", "if throttle and until_us > now + throttle * 1000000 then", "if false then"
    ),
    "fewer_throttled_and_opened": Mutant("claim.lua", "or has_held or has_spaced or", "or has_held or", "throttle"),
    "fewer_throttled_and_claimed_at_once": _unhindered("'spaced', 'zset', hinders = 'claim finish'", "claim "),
    "fewer_throttled_though_it_has_not_run": Mutant(
        "fewer.lua", "if has_spaced then redis.call('ZREM', P .. 'spaced', id) end", ""
    ),
    "fewer_free_by_a_death": Mutant("endings.lua", "if not kind then unspace(P, id) end", "unspace(P, id)"),
    "fewer_throttled_for_ever": Mutant(
        "fewer.lua", "if #past > 0 then redis.call('ZREM', P .. 'spaced', unpack(past)) end", ""
    ),
    "fewer_performed_now_and_put_off": Mutant("perform_now.lua", "redis.call('ZREM', P .. 'spaced', id)", ""),
    "fewer_finished_in_one": Mutant(
        "finish.lua",
        "HINDERS.settle, HINDERS.finish",
        "P .. 'due', P .. 'asides', P .. 'crashes', P .. 'errors', P .. 'cancels', P .. 'checkpoints', P .. 'tenants'",
    ),
    "fewer_settled_in_one": _unhindered(
        "'rules', 'hash', hinders = 'claim settle parting acquire'", "settle ", "a rule"
    ),
    "fewer_debounced_later_than_at_most": Mutant(
        "fewer.lua",
        "math.min(place + fewer.wait * 1000000, latest), latest",
        "place + fewer.wait * 1000000, latest",
        "debounce",
    ),
    "fewer_debounced_anew": Mutant("fewer.lua", "latest = math.min(latest, known * 1000000)", ""),
    "fewer_debounces_what_was_moved": Mutant(
        "fewer.lua", "not at or tonumber(redis.call('ZSCORE', P .. 'due', id)) ~= tonumber(at)", "not at", "debounce"
    ),
    "fewer_debounces_retries": Mutant(
        "fewer.lua",
        "if not at or tonumber(redis.call('ZSCORE', P .. 'due', id)) ~= tonumber(at) then return nil end",
        "known = known or place / 1000000 + fewer.at_most",
        "debounce",
    ),
    "fewer_debounced_and_running": Mutant(
        "fewer.lua", "redis.call('HDEL', P .. 'debounced', unpack(ids))", "", "debounced"
    ),
    "fewer_dropped_and_debounced": Mutant(
        "endings.lua", "  redis.call('HDEL', P .. 'debounced', id)\n  drop_tags", "  drop_tags", "debounced"
    ),
    "fewer_put_back_without_its_rule": Mutant(
        "rules.lua", "== 1 then return end\n  redis.call('HSET', P .. 'rules', id, rule)", "== 1 then return end"
    ),
    "fewer_revived_beside_what_is_kept": Mutant(
        "revive.lua", "if keep_with(P, id, redis", "if false and keep_with(P, id, redis"
    ),
    "due_by_the_clock_alone": Mutant("claim.lua", "follow_clock_back(P, now, tonumber(last_score), seen)", "{}"),
}

#: Of the quick way of a lone push; what finds them out are the scenes of test_once.py: histories take thousands.
OF_LONE_PUSHES = {
    "pushed_alone_again": Mutant("push.lua", "meta[6] and meta[6] < number", "meta[6]"),
    "pushed_alone_too_late": Mutant("push.lua", " and stamped <= number", ""),
}

#: Of the scripts that a queue's places are taken and kept by; what finds them out is test_places_model.py.
OF_PLACES = {
    "leaks_at_give": Mutant("places.lua", "if given > 0 then redis", "if false then redis"),
    "keeps_the_expired": Mutant("places.lua", "redis.call('ZREMRANGEBYSCORE', P .. 'taken', '-inf', stamp(now))", ""),
    "takes_beyond_max": Mutant("places.lua", "if is_free <= ahead then return 0 end", ""),
    "takes_all_that_it_wants": Mutant(
        "places.lua", "math.min(missing, math.max(1, is_free - rung - waiting + (rank and 1 or 0)))", "missing"
    ),
    "jumps_the_line": Mutant("places.lua", "rung + (rank or waiting)", "0"),
    "goes_before_who_was_rung": Mutant("places.lua", "rung + (rank or waiting)", "(rank or waiting)"),
    "takes_what_is_for_others": Mutant("places.lua", "math.max(1, is_free - rung", "math.max(1, is_free - 0"),
    "takes_anew_when_repeated": Mutant("places.lua", "and has or missing", "and missing or missing"),
    "stays_in_line": Mutant("places.lua", "if turns > 0 then leave_line(node) end", ""),
    "never_gets_in_line": Mutant("places.lua", "redis.call('ZADD', P .. 'waiting', 'NX', stamp(now), node)", ""),
    "goes_to_the_end_with_each_ask": Mutant("places.lua", "'waiting', 'NX', stamp", "'waiting', stamp"),
    "waits_for_the_silent": Mutant("places.lua", "redis.call('ZREM', P .. 'waiting', silent)", ""),
    "waits_for_who_does_not_come": Mutant(
        "places.lua", "redis.call('ZREMRANGEBYSCORE', P .. 'rung', '-inf', stamp(now))", ""
    ),
    "rings_nobody": Mutant("places.lua", "if turns <= 0 then return end", "if true then return end"),
    "rings_only_the_first": Mutant("places.lua", "'waiting', 0, turns))", "'waiting', 0, turns - 1))"),
    "rings_again": Mutant("places.lua", "count_free() - redis.call('ZCARD', P .. 'rung')", "count_free()"),
    "dead_keep_theirs": Mutant("places.lua", "if is_dead[string.match(place, '^(.*) ')] then", "if false then"),
    "dead_stay_in_line": Mutant("places.lua", "    leave_line(ARGV[i])\n", ""),
    "keeps_what_is_lost": Mutant("keep_places.lua", "if i <= free then", "if true then"),
    "loses_what_is_free": Mutant("keep_places.lua", "if i <= free then", "if false then"),
    "keeps_not": Mutant("keep_places.lua", "redis.call('ZADD', P .. 'taken', 'XX', over, ARGV[i])", ""),
    "keeps_beside_the_expired": Mutant(
        "keep_places.lua", "redis.call('ZREMRANGEBYSCORE', P .. 'taken', '-inf', stamp(now))", ""
    ),
}


def install(name: str, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """
    Makes every script that is loaded from here on the mutant's; in this process for good, unless a monkeypatch
    takes it back. A client that has loaded its scripts keeps them.
    """
    mutant = (MUTANTS | OF_LONE_PUSHES | OF_PLACES)[name]
    replace(mutant.file, mutant.safeguard, mutant.instead, monkeypatch or pytest.MonkeyPatch())


def find_out(tries: Iterable[Callable[[], object]], before_each: Callable[[], object]) -> None:
    """Fails the test unless one of these finds broken what was taken out."""
    for attempt in tries:
        before_each()
        try:
            attempt()
        except (AssertionError, ResponseError, LowkiqError, pytest.fail.Exception):
            return
    pytest.fail("nothing has found it out")


def replace(file: str, text: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes every script that is loaded from here on and has that text in that file."""
    monkeypatch.setattr(scripts, "_read", _with_change(scripts._read, file, text, instead))


@cache
def _with_change(read: scripts.Read, file: str, text: str, instead: str) -> scripts.Read:
    """The same for the same, by which loaded scripts are known."""

    def replaced(path: str) -> str:
        source = read(path)
        if path.rpartition("/")[2] != file:
            return source
        return once(source, text, instead, path)  # no AssertionError, which would count as having found the mutant out

    return replaced
