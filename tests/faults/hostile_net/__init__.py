"""
A hostile network: every way in which bytes come late, in pieces, or never, between Redis and whoever uses it. Nothing
may be lost, no reply may be that of another command, all must work again soon after, and events must tell each gap.

    python -m tests.faults.hostile_net --minutes 10 --on cluster
"""
