"""Splitters: which shards a node wants, and which of its threads owns which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def transposed_groups(items: Sequence[T], number: int) -> list[list[T]]:
    """Item i goes to group i % number (the original's `in_transposed_groups`)."""
    return [list(items[group::number]) for group in range(number)]


class Default:
    """All shards, over the threads of one node."""

    def __init__(self, threads_per_node: int) -> None:
        self._threads_per_node = threads_per_node

    def __call__(self, shard_handlers: Sequence[T]) -> list[list[T]]:
        return [group for group in transposed_groups(shard_handlers, self._threads_per_node) if group]


class ByNode:
    """The shards of node `node_number` of `number_of_nodes`, over its threads."""

    def __init__(self, number_of_nodes: int, node_number: int, threads_per_node: int) -> None:
        self._number_of_nodes = number_of_nodes
        self._node_number = node_number
        self._over_threads = Default(threads_per_node)

    def __call__(self, shard_handlers: Sequence[T]) -> list[list[T]]:
        return self._over_threads(transposed_groups(shard_handlers, self._number_of_nodes)[self._node_number])
