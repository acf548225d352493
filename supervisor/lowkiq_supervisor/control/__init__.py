"""How people and probes talk to a running supervisor: a socket, its commands, and the status."""
