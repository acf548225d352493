"""Wrong credentials: each waits, few at a time, and nobody else for them."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from starlette.exceptions import HTTPException

from lowkiq.web.security.guesses import FAILURES_KEPT, LONGEST_DELAY, MOST_IN_ALL, MOST_OF_AN_ADDRESS, Guesses, block_of
from tests.web.conftest import TOKEN

ADDRESS, OTHER = "192.0.2.1", "192.0.2.2"
#: Made simultaneously.
GUESSES = 10


class Bench:
    """Guesses whose waiting is held until it is released."""

    def __init__(self):
        self.delays: list[float] = []
        self.go = anyio.Event()
        self.guesses = Guesses(self._wait)
        self.answers: list[object] = []

    async def _wait(self, seconds):
        self.delays.append(seconds)
        await self.go.wait()

    async def judge(self, address, *, is_right=False, text="", **options):
        try:
            self.answers.append(await self.guesses.judge(address, text, lambda: is_right, **options))
        except HTTPException as error:
            self.answers.append(error.status_code)
            assert error.headers == {"Retry-After": "2"}


def run(scenario):
    async def with_bench():
        bench = Bench()
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                await scenario(bench, group)
        return bench

    return anyio.run(with_bench)


def test_few_of_an_address_are_answered_at_a_time_and_the_rest_is_told_to_come_back():
    async def scenario(bench, group):
        for _ in range(300):
            group.start_soon(bench.judge, ADDRESS)
        await anyio.wait_all_tasks_blocked()
        assert bench.answers == [429] * (300 - MOST_OF_AN_ADDRESS)
        await bench.judge(ADDRESS, is_right=True)
        assert bench.answers[-1] == 429  # before it is compared, or it would be told from the wrong ones
        await bench.judge(OTHER, is_right=True)
        assert bench.answers[-1] is True
        bench.go.set()

    bench = run(scenario)
    assert bench.answers[-MOST_OF_AN_ADDRESS:] == [False] * MOST_OF_AN_ADDRESS


def test_few_are_in_all_but_whoever_has_made_none_is_let_in():
    async def scenario(bench, group):
        for number in range(MOST_IN_ALL + 5):
            group.start_soon(bench.judge, f"198.51.100.{number}")
        await anyio.wait_all_tasks_blocked()
        await bench.judge(f"198.51.100.{MOST_IN_ALL + 4}")
        assert bench.answers == [429]
        await bench.judge(OTHER, is_right=True)
        assert bench.answers == [429, True]
        bench.go.set()

    run(scenario)


def test_credentials_that_were_right_once_are_no_guess_any_more():
    async def scenario(bench, group):
        await bench.judge(ADDRESS, is_right=True, text="Bearer right")
        for _ in range(MOST_OF_AN_ADDRESS):
            group.start_soon(bench.judge, ADDRESS)
        await anyio.wait_all_tasks_blocked()
        await bench.judge(ADDRESS, is_right=True, text="Bearer right")
        assert bench.answers == [True, True]
        bench.go.set()

    run(scenario)


def test_a_token_that_was_made_up_is_let_in_whatever_else_comes_from_its_owners_address():
    async def scenario(bench, group):
        for _ in range(MOST_OF_AN_ADDRESS):
            group.start_soon(bench.judge, ADDRESS)
        await anyio.wait_all_tasks_blocked()
        await bench.judge(ADDRESS, is_right=True, is_made=True)
        await bench.judge(ADDRESS, is_made=True)
        assert bench.answers == [True, 429]
        bench.go.set()

    run(scenario)


def test_delays_grow_to_a_bound_and_memory_has_one():
    async def scenario(bench, group):
        bench.go.set()
        for number in range(200):
            await bench.judge(f"2001:db8:{number:x}::1")

    bench = run(scenario)
    assert bench.delays[0] == 0.2
    assert bench.delays == sorted(bench.delays)
    assert bench.delays[-1] == LONGEST_DELAY
    assert len(bench.guesses._failures) == FAILURES_KEPT
    assert not bench.guesses._answering


@pytest.mark.parametrize(
    ("client", "block"),
    [("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::/64"),
     ("2001:db8::ffff:1", "2001:db8::/64"), (None, ""), ("testclient", "testclient")],
)  # fmt: skip
def test_who_has_a_network_is_one(client, block):
    assert block_of(client) == block


@pytest.mark.parametrize("how", ["form", "bearer", "basic"])
def test_all_ways_to_guess_count(make_web, browse, monkeypatch, how):
    refused = []

    async def until_all_others_are_refused(_):
        while len(refused) < GUESSES - MOST_OF_AN_ADDRESS:
            await anyio.sleep(0.01)

    monkeypatch.setattr(Guesses.__init__, "__defaults__", (until_all_others_are_refused,))
    basic = base64.b64encode(b"x:wrong").decode()
    headers = {"form": {}, "bearer": {"authorization": "Bearer wrong"}, "basic": {"authorization": f"Basic {basic}"}}
    browser = browse(make_web(token=TOKEN))

    def guess(_):
        if how == "form":
            status = browser.post("/sign-in", {"access_token": "wrong"}).status_code
        else:
            status = browser.get("/api/v1/stats", **headers[how]).status_code
        if status == 429:
            refused.append(status)
        return status

    with ThreadPoolExecutor(GUESSES) as pool:
        statuses = list(pool.map(guess, range(GUESSES)))
    assert sorted(statuses) == [401] * MOST_OF_AN_ADDRESS + [429] * (GUESSES - MOST_OF_AN_ADDRESS)
