"""Alerts as pages show them: the worst first, each with a link."""

from __future__ import annotations

from dataclasses import dataclass

from lowkiq.admin.alerts import Alert, alerts_of
from lowkiq.web.snapshot import Snapshot


@dataclass(frozen=True)
class AlertRow:
    """An alert in the list of a page."""

    alert: Alert

    @property
    def path(self) -> str:
        """The page to see, within the view."""
        match self.alert.kind:
            case "unowned":
                return f"/queues/{self.alert.subject}"
            case "Redis":
                return "/#redis"
        return "/nodes"


def alert_rows(snapshot: Snapshot) -> list[AlertRow]:
    """All alerts, the worst first."""
    alerts = [*alerts_of(snapshot.nodes), *snapshot.server.alerts]
    return [AlertRow(alert) for alert in sorted(alerts, key=lambda alert: alert.severity != "bad")]


def alert_rows_of_queue(snapshot: Snapshot, queue: str) -> list[AlertRow]:
    """Alerts of one queue."""
    return [row for row in alert_rows(snapshot) if row.path == f"/queues/{queue}"]
