"""Subject: an application with its Redis and environment, read once and shared by all checks; and what these find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lowkiq.admin import probes
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.alerts.look import Found, Look
from lowkiq.admin.beats.health import NodeHealth, read_health
from lowkiq.admin.beats.nodes import Nodes, judge
from lowkiq.admin.metrics import QueueMetrics, ShardMetrics, by_queue, read_layouts, read_shards
from lowkiq.admin.resharding import Resharding, read_moving
from lowkiq.admin.words import age
from lowkiq.app import Lowkiq
from lowkiq.environment import find_number_of_nodes, find_redis_url
from lowkiq.process.place import EMBEDDED_SOCKET
from lowkiq.queue.call import Caller
from lowkiq.queue.keys import LAYOUT_VERSION, Layout
from lowkiq.queue.shard import shards_of
from lowkiq.redaction import redact
from lowkiq.settings import DEFAULT_URL, Settings
from lowkiq.transport.connect import client_for_people, connections_of_node

#: Files that a node has open beside connections.
OTHER_FILES = 64


class Subject:
    """An application, the Redis that it uses and the environment that it would run in."""

    def __init__(self, app: Lowkiq, environment: Mapping[str, str], *, has_app: bool) -> None:
        self.app = app
        self.settings: Settings = app.settings
        self.environment = environment
        #: True if the application was named; else only its Redis is known.
        self.has_app = has_app

    @cached_property
    def caller(self) -> Caller:
        """Waits for a reply as long as people do."""
        return Caller(client_for_people(self.settings))

    def close(self) -> None:
        """Closes the connections."""
        if "caller" in vars(self):
            self.caller.close()

    @property
    def url(self) -> str:
        """The address of Redis, for people."""
        return "the client that `redis` makes" if self.settings.redis else redact(self.settings.redis_url)

    @property
    def url_source(self) -> str:
        """The source of that address."""
        url, found = self.settings.redis_url, find_redis_url(self.environment)
        if self.settings.redis:
            return "the app"
        if found and found.text == url:
            return found.source
        return "the state directory" if self.is_embedded else "the default" if url == DEFAULT_URL else "the app"

    @property
    def is_embedded(self) -> bool:
        """True when it is the supervisor's own."""
        return self.settings.redis is None and self.settings.redis_url.endswith(EMBEDDED_SOCKET)

    @cached_property
    def info(self) -> Mapping[str, Any]:
        return dict(self.caller.command("INFO"))

    def config(self, name: str) -> str | None:
        """A setting of the server, if it may be read."""
        return probes.read_config(self.caller, name)

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """Every queue in Redis."""
        return read_layouts(self.caller, self.settings.namespace)

    @cached_property
    def shards(self) -> list[ShardMetrics]:
        """The numbers of every shard that this Lowkiq can read."""
        known = {queue: one for queue, one in self.layouts.items() if one.version <= LAYOUT_VERSION}
        return read_shards(self.caller, shards_of(self.settings.namespace, known))

    @cached_property
    def queues(self) -> Mapping[str, QueueMetrics]:
        """The numbers of every queue."""
        return by_queue({shard.queue: None for shard in self.shards}, self.shards)

    @cached_property
    def nodes(self) -> Nodes:
        """All nodes that have beaten lately, and what is wrong with them."""
        return judge(self._heartbeats, self.shards, self.caller.met.now())

    @property
    def alerts(self) -> list[Alert]:
        return self._found.alerts

    def since(self, alert: Alert) -> str:
        """Says since when an alert has lasted, as far as it is noted or known."""
        lasts = 0.0 if alert.since is None else self._found.at - alert.since
        return f" (for {age(lasts)})" if lasts >= 1 else ""

    @cached_property
    def _found(self) -> Found:
        look = Look(self.caller, self.settings.namespace, self.app.thresholds)
        return look(self.nodes, self.shards, self.queues, self.reshards)

    @cached_property
    def reshards(self) -> Mapping[str, Resharding]:
        """How far those queues are that are being resharded."""
        return read_moving(self.caller, self.settings.namespace, self.layouts)

    @cached_property
    def _heartbeats(self) -> list[NodeHealth]:
        return read_health(self.caller, self.settings.namespace)

    @property
    def number_of_nodes(self) -> int:
        """How many nodes there are to be, as far as anybody says."""
        found = find_number_of_nodes(None, self.environment)
        said = int(found.text) if found and found.text.isdecimal() else 1
        return max([said, *(node.number_of_nodes for node in self._heartbeats)])

    @property
    def connections_of_a_node(self) -> int:
        """Connections that one node may open to Redis: its own, and those for pushing."""
        return connections_of_node(self.settings.threads_per_node) + self.settings.client_pool_size


Level = Literal["ok", "note", "warning", "problem"]

#: The gravest first, as people read them.
LEVELS: Final[tuple[Level, ...]] = ("problem", "warning", "note", "ok")


class Verdict(NamedTuple):
    """The answer of a check; `do` is for warnings and problems."""

    level: Level
    says: str
    do: str | None = None


#: It is as it should be.
ok: Final = partial(Verdict, "ok")
#: Good to know, and nothing to do.
note: Final = partial(Verdict, "note")
#: It works, but not as well or as safely as it could.
warning: Final = partial(Verdict, "warning")
#: Jobs are not accepted, not run, or in danger.
problem: Final = partial(Verdict, "problem")


class Finding(msgspec.Struct, frozen=True):
    """A verdict under the name of its check."""

    check: str
    level: Level
    says: str
    do: str | None


#: Examines one thing. No verdict means that there was nothing to examine.
Check = Callable[[Subject], Iterable[Verdict]]


def of_alert(alert: Alert, since: str = "", level: Level | None = None) -> Verdict:
    """An alert as a problem or a warning, if it is not to be of another level."""
    return Verdict(level or ("problem" if alert.severity == "bad" else "warning"), f"{alert.says}{since}", alert.do)


def checks_of(*kinds: str) -> Check:
    """The check whose findings are the alerts of these kinds."""
    return lambda subject: of_alerts(subject, *kinds)


def of_alerts(subject: Subject, *kinds: str, level: Level | None = None) -> list[Verdict]:
    """The alerts of these kinds, with since when they have lasted."""
    return [of_alert(alert, subject.since(alert), level) for alert in subject.alerts if alert.kind in kinds]
