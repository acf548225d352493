"""What people and programs see of queues and nodes, and what they can do to jobs."""
