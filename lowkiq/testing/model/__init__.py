"""Model of a shard in plain Python: what Redis holds, and what each script changes. Our own histories run on it, too."""
