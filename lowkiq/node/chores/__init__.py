"""Threads of a node beside its workers: what they do for shards that the node owns."""
