"""Views of queues and nodes for people and programs, and actions on jobs."""
