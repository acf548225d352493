"""
Telemetry: spans and metrics of pushes and batches for OpenTelemetry, where `Lowkiq(telemetry=True)` asks for them.

It needs `opentelemetry-api` alone (`pip install 'lowkiq[otel]'`), and nothing of it is imported before: what becomes of
spans is for the SDK to say that the application sets up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowkiq.errors import SettingsError

if TYPE_CHECKING:
    from lowkiq.telemetry.spans import Telemetry

__all__ = ["flush", "make_telemetry"]


def make_telemetry(is_wanted: bool) -> Telemetry | None:
    """
    The telemetry of an application that wants one.

    Raises:
        SettingsError: OpenTelemetry is not installed.
    """
    if not is_wanted:
        return None
    try:
        from lowkiq.telemetry.spans import Telemetry  # noqa: PLC0415 (an extra, which other applications do without)
    except ModuleNotFoundError as error:
        raise SettingsError(f"telemetry=True needs {error.name}: pip install 'lowkiq[otel]'") from error
    return Telemetry()


def flush(is_wanted: bool, timeout: float = 2.0) -> None:
    """
    Hands what was told over to whoever exports it: a process of Lowkiq's runs nothing as it ends.

    Args:
        timeout: seconds to wait for that; it goes on in the background.
    """
    if is_wanted:
        from lowkiq.telemetry.spans import flush_providers  # noqa: PLC0415 (as above)

        flush_providers(timeout)
