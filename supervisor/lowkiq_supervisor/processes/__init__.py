"""The processes of the supervisor: how each kind is started, watched and reaped."""
