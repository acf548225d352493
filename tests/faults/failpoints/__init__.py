"""Failpoints: a process is killed, or loses its connection, at each of its calls to Redis, one by one."""
