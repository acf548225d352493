"""How commands reach Redis: one server, Sentinel or Cluster. It knows no queue."""
