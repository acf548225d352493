"""What was: the history of queues."""
