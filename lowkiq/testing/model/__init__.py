"""What Redis holds of a shard and what each script changes, in plain Python: the project's histories run on it, too."""
