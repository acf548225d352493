"""Partition: which shards are a node's part, and how they are dealt to its threads."""

from __future__ import annotations

from collections.abc import Sequence

from lowkiq.errors import SettingsError
from lowkiq.node.shard_handler import ShardHandler
from lowkiq.node.splitters import ByNode
from lowkiq.settings import Settings


def own_part(
    handlers: Sequence[ShardHandler], settings: Settings, node_number: int, number_of_nodes: int
) -> list[Sequence[ShardHandler]]:
    """The node's part, a group a thread, as the splitter has it. Raises SettingsError when that deals a shard twice."""
    if settings.build_splitter:
        splitter = settings.build_splitter(node_number, number_of_nodes, settings.threads_per_node)
    else:
        splitter = ByNode(number_of_nodes, node_number, settings.threads_per_node)
    groups = [group for group in splitter(handlers) if group]
    members = [handler for group in groups for handler in group]
    if len(set(members)) < len(members):
        raise SettingsError("the splitter gives a shard to two threads, or twice to one: each must come once")
    return groups


def with_fosters(
    groups: Sequence[Sequence[ShardHandler]], handlers: Sequence[ShardHandler], threads: int
) -> list[Sequence[ShardHandler]]:
    """Deals what is not the node's part to its threads as well, in case that other nodes are away (fostering.py)."""
    ours = {handler for group in groups for handler in group}
    others = [handler for handler in handlers if handler not in ours]
    if not others:
        return list(groups)
    for handler in others:
        handler.is_foster = True
    dealt: list[list[ShardHandler]] = [list(group) for group in groups] + [[] for _ in range(threads - len(groups))]
    dealt.sort(key=len)  # threads with little of their own come first
    return [[*group, *others[number :: len(dealt)]] for number, group in enumerate(dealt)]
