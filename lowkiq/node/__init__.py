"""A node: one process whose threads run the jobs of the shards it has leased."""
