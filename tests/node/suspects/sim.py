"""
A simulation of trees of processes that die of jobs, in virtual time: what deaths.lua, claim.lua, suspects.py and
trials.py decide, and nothing else. Every job is of an id of its own.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Final

from lowkiq.node.suspects.trials import GATHER, LONGEST_TURN, PAUSE, QUIET, TRIED, TURN
from lowkiq.testing.model.shard_rules import LONGEST_PAUSE, MOST_CROWDS
from lowkiq.testing.model.shard_state import SECOND

MAX_CRASHES: Final = 3
#: Seconds from the death of a tree, or a node, until its jobs are queued again and it works.
BOOT: Final = 2.0
#: A trial that nobody waits for stays alone; here somebody always does.
THREADS: Final = 4


@dataclass(eq=False)
class Job:
    """A job. A poison kills after `seconds`, an innocent ends then."""

    name: str
    seconds: float
    #: What dies with it: "" nothing, "process" the process that it runs in, "node" its node, wherever it runs, "tree"
    #: everything.
    kills: str = ""
    due: float = 0.0
    crashes: int = 0
    crowds: int = 0
    deaths: int = 0
    end: str = ""


@dataclass(eq=False)
class Run:
    job: Job
    node: int
    ends: float
    in_process: bool
    alone: bool = False


@dataclass
class Rule:
    """What mutants change."""

    tried: int = TRIED
    most_crowds: int = MOST_CROWDS
    knows_alone: bool = True
    knows_apart: bool = True
    counts_apart: bool = True


@dataclass(eq=False)
class Tree:
    nodes: int
    up_at: float = 0.0
    runs: list[Run] = field(default_factory=list)
    closed_since: float = -math.inf
    closed_until: float = -math.inf
    next_trial: float = 0.0
    turn_until: float = -math.inf
    tried: Run | None = None
    down: dict[int, float] = field(default_factory=dict)


class World:
    """Trees, and a queue that they share."""

    def __init__(self, seed: int, trees: int, nodes: int, jobs: list[Job], rule: Rule | None = None) -> None:
        self.luck = random.Random(seed)
        self.now, self.rule = 0.0, rule or Rule()
        self.trees = [Tree(nodes) for _ in range(trees)]
        self.waiting = list(jobs)
        self.jobs = jobs
        self.deaths = 0

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, until: float) -> None:
        """Runs until all jobs have ended."""
        while any(not job.end for job in self.jobs):
            assert self.now < until, f"not dry: {[job for job in self.jobs if not job.end]}"
            self.start_all()
            self.now = self.next_moment()
            self.end_all()

    def next_moment(self) -> float:
        moments = [run.ends for tree in self.trees for run in tree.runs]
        moments += [job.due for job in self.waiting]
        for tree in self.trees:
            moments += [tree.up_at, tree.closed_until, tree.next_trial, tree.turn_until, *tree.down.values()]
        return min((at for at in moments if at > self.now), default=self.now + 1) + 1e-6

    def start_all(self) -> None:
        due = sorted(
            (job for job in self.waiting if job.due <= self.now), key=lambda job: (job.due, self.luck.random())
        )
        for job in due:
            trees = [tree for tree in self.trees if tree.up_at <= self.now]
            self.luck.shuffle(trees)
            any(self.start(tree, job) for tree in trees)

    def start(self, tree: Tree, job: Job) -> bool:
        free = [node for node in range(tree.nodes) if tree.down.get(node, 0) <= self.now]
        free = [node for node in free if sum(run.node == node for run in tree.runs) < THREADS]
        if not free or self.now < tree.closed_until:
            return False
        node = self.luck.choice(free)
        suspect = job.crowds >= 1
        run = Run(job, node, self.now + job.seconds, in_process=suspect)
        if suspect and job.crowds >= self.rule.tried and not self.try_it(tree, run):
            return False
        tree.runs.append(run)
        self.waiting.remove(job)
        return True

    def try_it(self, tree: Tree, run: Run) -> bool:
        """Gets its turn; it is alone if all others end in a moment, and for as long as nobody else may begin."""
        if self.now < tree.next_trial or self.now < tree.turn_until:
            run.job.due = max(self.now, tree.next_trial) + self.luck.uniform(QUIET, 2 * QUIET)
            return False
        others = max((other.ends for other in tree.runs), default=self.now)
        kills = any(other.job.kills and other.ends <= self.now + GATHER for other in tree.runs)
        run.alone = others <= self.now + GATHER and not kills
        if kills:  # it waits for what kills it: that is a death before it has begun
            run.job.due = self.now + GATHER
            return False
        waits = others - self.now if run.alone else GATHER
        run.ends = self.now + waits + run.job.seconds
        tree.closed_until = self.now + (max(QUIET, waits) if run.alone else waits)
        tree.closed_until = min(tree.closed_until, max(run.ends, self.now + waits))
        tree.next_trial = tree.closed_until + PAUSE * (tree.closed_until - self.now)
        tree.turn_until = self.now + min(TURN * 2 ** (run.job.crowds - TRIED), LONGEST_TURN)
        tree.turn_until = min(tree.turn_until, run.ends)
        tree.tried = run
        return True

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def end_all(self) -> None:
        for tree in self.trees:
            for run in sorted(tree.runs, key=lambda run: run.ends):
                if run.ends > self.now or run not in tree.runs:
                    continue
                if not run.job.kills:
                    tree.runs.remove(run)
                    run.job.end, run.job.crashes, run.job.crowds = "done", 0, 0
                elif run.job.kills == "tree":
                    self.kill_tree(tree)
                elif run.in_process and run.job.kills == "process":
                    tree.runs.remove(run)
                    run.job.crashes += 1
                    self.bury_or_queue(run.job, run.job.crashes >= MAX_CRASHES)
                else:
                    self.kill_node(tree, run.node)

    def kill_node(self, tree: Tree, node: int) -> None:
        """Its supervisor lives, and knows what it ran; of what has a process of its own that is no proof."""
        self.deaths += 1
        lost = [run for run in tree.runs if run.node == node]
        tree.runs = [run for run in tree.runs if run.node != node]
        tree.down[node] = self.now + BOOT
        for run in lost:
            if run.in_process and not self.rule.counts_apart:
                self.queue(run.job)
            else:
                self.count(run, is_alone=run.alone and not self.rule.knows_apart)

    def kill_tree(self, tree: Tree) -> None:
        self.deaths += 1
        lost, tree.runs = tree.runs, []
        is_quiet = self.now < tree.closed_until
        tree.up_at = self.now + BOOT
        tree.closed_until = tree.turn_until = -math.inf
        tree.next_trial = 0.0
        for run in lost:
            self.count(run, is_alone=run.alone and (is_quiet or not self.rule.knows_alone))

    def count(self, run: Run, *, is_alone: bool) -> None:
        job = run.job
        job.deaths += 1
        if is_alone or not job.crashes:
            job.crashes += 1
        else:
            job.crowds += 1
        pause = min(2.0 ** (job.crowds - TRIED), LONGEST_PAUSE / SECOND) if job.crowds >= TRIED else 0.0
        job.due = self.now + BOOT + pause
        is_over = job.crashes >= MAX_CRASHES if is_alone else job.crowds >= self.rule.most_crowds
        self.bury_or_queue(job, is_over)

    def bury_or_queue(self, job: Job, is_over: bool) -> None:
        if is_over:
            job.end = "buried"
        else:
            self.queue(job)

    def queue(self, job: Job) -> None:
        self.waiting.append(job)
