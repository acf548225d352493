"""
Variables of the environment: all there are, and those that are nearly one of them.

Standard library only, as environment.py, and for the same reason. A test holds the list against settings and options.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "LOWKIQ_"
#: Without the prefix: settings, options of the supervisor, what commands read, and what a supervisor tells its nodes.
NAMES: Final = frozenset({
    "ALERT_FAILING", "ALERT_LAG", "ALERT_LONG", "ALERT_MEMORY", "ALERT_MORGUE", "ALERT_PERSISTENCE", "CLAIM_WINDOW",
    "CLIENT_POOL_SIZE", "DRAIN_TIMEOUT", "LEASE_TTL", "MAX_CRASHES", "MAX_ID_BYTES", "MAX_PAYLOADS",
    "MAX_PAYLOAD_BYTES", "NAMESPACE", "POLL_INTERVAL", "POOL_TIMEOUT", "PUSH_TIMEOUT", "REDIS_URL", "TELEMETRY",
    "THREADS_PER_NODE", "TRACEBACK_FRAMES", "VOLATILE_EVICTION", "WAIT_REPLICAS", "WAIT_TIMEOUT", "BOOT_TIMEOUT",
    "HANG_TIMEOUT", "LOG_FILE", "MAX_AGE", "MAX_JOBS", "MAX_RSS", "NODES", "NODE_NUMBER", "NUMBER_OF_NODES", "QUEUES",
    "SMTP_URL", "SOAK", "STATE_DIR", "THREADS", "WEB_HOSTS", "WEB_MADE_TOKEN", "WEB_PASSWORD", "WEB_PROXIES",
    "WEB_ROOT_PATH", "WEB_TOKEN", "WEB_USER", "APP", "OPTIONS", "LAST_EXIT", "RESTARTS", "RSS_LIMIT", "SLOT",
    "SUPERVISOR_PID",
})  # fmt: skip
#: How alike two names are, of 1, of which one is taken for the other misspelt.
ALIKE: Final = 0.8


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are nearly one of Lowkiq's, each with that one: nobody reads them."""
    found = {}
    for name in environment:
        own = name.upper().replace("-", "_")
        if own.startswith(PREFIX) and name.removeprefix(PREFIX) not in NAMES:
            near = difflib.get_close_matches(own.removeprefix(PREFIX), sorted(NAMES), n=1, cutoff=ALIKE)
            if near:
                found[name] = PREFIX + near[0]
    return found
