"""Every name in Redis."""

from __future__ import annotations


def shard(namespace: str, queue: str, index: int) -> str:
    """
    What all keys of a shard begin with. The braces are a hash tag: a shard lives in one Cluster slot, where its
    scripts are atomic, and the shards of a queue spread over the cluster.
    """
    return f"{namespace}:{{{queue}:{index}}}:"


def queues(namespace: str) -> str:
    """Hash: queue → shards_count."""
    return f"{namespace}:queues"


def nodes(namespace: str) -> str:
    """Zset: node → its last beat."""
    return f"{namespace}:nodes"


def node(namespace: str, name: str) -> str:
    """The health of a node, as JSON with a TTL."""
    return f"{namespace}:node:{name}"


def doorbell(namespace: str, name: str) -> str:
    """The channel on which a node hears of work for shards it believes idle (bell.lua makes the same name)."""
    return f"{namespace}:bell:{name}"


def thread_bell(namespace: str, name: str, thread: int) -> str:
    """The list on which a thread of a node hears of it, where scripts can reach both. Forgotten when nobody listens."""
    return f"{namespace}:bell:{name}:{thread}"


def history(namespace: str, queue: str) -> str:
    """What the lists of a queue's history begin with. They share a Cluster slot: a sample is one script."""
    return f"{namespace}:{{history}}:{queue}:"


def history_turn(namespace: str) -> str:
    """Exists until the next sample of the history is due."""
    return f"{namespace}:{{history}}"


def unowned(namespace: str) -> str:
    """The shards that nobody had at the last look."""
    return f"{namespace}:unowned"


def web_key(namespace: str) -> str:
    """What web views without credentials sign their write tokens with."""
    return f"{namespace}:web:key"


def bulks(namespace: str) -> str:
    """Zset: bulk → when it was started."""
    return f"{namespace}:bulks"


def bulk(namespace: str, id: str) -> str:
    """The progress of a bulk, as JSON with a TTL."""
    return f"{namespace}:bulk:{id}"


def bulk_stop(namespace: str, id: str) -> str:
    """Exists once somebody has asked a bulk to stop."""
    return f"{namespace}:bulk:{id}:stop"
