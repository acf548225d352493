"""Model of a shard in plain Python: what Redis holds, and what scripts change. Our own histories run on it, too."""
