"""Ways to push: many jobs in one call, each apart, and awaited."""

from __future__ import annotations

import asyncio
from random import Random

from lowkiq.job import EncodedJob
from lowkiq.queue.awaited import AwaitedPushes
from lowkiq.queue.push_calls import push_apart_call
from tests.pairs.capability import Capability
from tests.pairs.jobs import Row
from tests.queue.stamps import once


class Ways(Capability):
    name = "ways"
    steps = {"push_many": 4, "push_apart": 3, "push_awaited": 1}  # noqa: RUF012

    def push_many(self, random: Random) -> None:
        self.world.push_rows(self._rows(random))

    def push_apart(self, random: Random) -> None:
        """What is left is pushed again in its order, as those who await pushes do."""
        world = self.world
        rows = [row for row in self._rows(random) if row.job.is_plain]
        taken = set[int]()
        for shard, jobs in world.producer.by_shard([row.job for row in rows]).items():
            mine = [number for number, row in enumerate(rows) if row.job in jobs]
            result = world.run(push_apart_call([(shard, jobs)], once()))
            if isinstance(result, list):
                taken |= {number for number, one in zip(mine, result, strict=True) if one}
        world.tell(f"push apart {' '.join(f'{row.id}={row.payload!r}' for row in rows)}: {len(taken)} taken")
        world.accept([row for number, row in enumerate(rows) if number in taken])
        if left := [row for number, row in enumerate(rows) if number not in taken]:
            world.push_rows(left)

    def push_awaited(self, random: Random) -> None:
        self.world.push_rows(self._rows(random), lambda jobs: asyncio.run(self._await(jobs)))

    async def _await(self, jobs: list[EncodedJob]) -> None:
        """Each in a push of its own, all at a time."""
        pushes = AwaitedPushes(self.world.caller, 10.0, is_direct=False)
        producer = self.world.producer
        await asyncio.gather(*(pushes.push(producer, [job], lambda some, first=0: list(some)) for job in jobs))
        await pushes.end()

    def _rows(self, random: Random) -> list[Row]:
        return [self.world.new_row(random) for _ in range(random.randint(2, 5))]
