"""What a node holds of a shard: the lease, its claims, and how their jobs run on threads."""
