"""Names of attributes and metrics: the semantic conventions for messaging, 1.43, which are still in development."""

from __future__ import annotations

from typing import Final

SCHEMA: Final = "https://opentelemetry.io/schemas/1.43.0"

SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"

#: The conventions' advice on where the buckets of a duration in seconds end.
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

#: The conventions have no word for these.
IDS: Final = "lowkiq.ids"
ATTEMPT: Final = "lowkiq.attempt"
DECISION: Final = "lowkiq.decision"
ID: Final = "lowkiq.id"
