"""A node's hold on a shard: the lease, its claims, and how their jobs run on threads."""
