"""Cost of a job as things grow: `make bench-scale`."""
