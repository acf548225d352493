"""What a job costs as things grow: `make bench-scale`."""
