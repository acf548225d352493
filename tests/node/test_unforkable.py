"""What an import has begun that forked processes would not have is told before their first job."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from lowkiq import Lowkiq
from lowkiq.node.boot import make_fork_server
from lowkiq.process import unforkable
from lowkiq.process.unforkable import missing_in_forks
from lowkiq.shared_page import SharedPage
from tests.node.driven import no_fatal


@pytest.fixture
def thread() -> Iterator[None]:
    """A tracing agent's, say."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="agent")
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of pytest's are left out."""
    every, others = threading.enumerate, set(threading.enumerate())
    monkeypatch.setattr(threading, "enumerate", lambda: [thread for thread in every() if thread not in others])


def warnings_of(app: Lowkiq) -> list[Any]:
    with capture_logs() as logs:
        make_fork_server(app.workers, app.settings, SharedPage(), no_fatal, lambda: None).close()
    return [line for line in logs if line["event"] == "import_forbids_forks"]


@pytest.mark.usefixtures("alone", "thread")
def test_a_thread_is_told_of_where_jobs_have_processes_of_their_own(app: Lowkiq) -> None:
    app.worker(queue_name="plain")(lambda _: None)
    assert warnings_of(app) == []
    app.worker(queue_name="apart", isolation="process")(lambda _: None)
    (told,) = warnings_of(app)
    assert (told["started"], told["queues"]) == (["thread agent"], ["apart"])
    assert "on_server_init" in told["advice"]


@pytest.mark.usefixtures("alone")
def test_what_runs_nothing_is_not_told_of(app: Lowkiq) -> None:
    app.worker(queue_name="apart", isolation="process")(lambda _: None)
    assert warnings_of(app) == []


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("is_initialized", [True, False])
def test_cuda_counts_once_it_is_initialized(is_initialized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: is_initialized)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # type: ignore[arg-type]
    assert missing_in_forks() == (["CUDA"] if is_initialized else [])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("found", [[], ["3 not started by Python"]])
def test_grpc_counts_once_it_has_threads(found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(unforkable, "threads", lambda: found)
    assert missing_in_forks() == (["gRPC"] if found else [])
