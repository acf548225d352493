"""Ownership: which shards are this node's part, where nobody has numbered the nodes."""
