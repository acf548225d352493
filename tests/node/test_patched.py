"""A node whose threads are greenlets would never be ready, and would say nothing: it is refused."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from lowkiq import Lowkiq
from lowkiq.doctor.examination import examine
from lowkiq.doctor.subject import Subject
from lowkiq.environment import ExitCode
from lowkiq.node.node import Node


@pytest.fixture(params=[("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")], ids=str)
def patcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Has nothing patched; tests set `patched`."""
    name, question = request.param
    module = ModuleType(name)
    vars(module).update({"patched": set(), question: lambda what: what in vars(module)["patched"]})
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize("when", ["before", "in on_server_init"])
@pytest.mark.parametrize("name", ["threading", "thread"])
def test_a_node_is_refused_with_the_cure(
    app: Lowkiq, patcher: ModuleType, when: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def patch() -> None:
        vars(patcher)["patched"].add(name)

    if when == "before":
        patch()
    made = Lowkiq(redis_url=app.settings.redis_url, namespace=app.settings.namespace, on_server_init=patch)
    made.worker(queue_name="jobs")(lambda _: None)
    assert Node(made, burst=True).run() == ExitCode.BOOT
    said = "".join(capsys.readouterr())
    assert patcher.__name__.partition(".")[0] in said and "thread=False" in said
    made.close()


def test_what_is_patched_besides_does_no_harm(app: Lowkiq, patcher: ModuleType) -> None:
    vars(patcher)["patched"] |= {"socket", "select", "time"}
    app.worker(queue_name="jobs")(lambda _: None)
    assert Node(app, burst=True).run() == ExitCode.DRAINED


def test_the_doctor_says_so(app: Lowkiq, patcher: ModuleType) -> None:
    vars(patcher)["patched"].add("threading")
    subject = Subject(app, {}, has_app=True)
    found = [one for one in examine(subject) if one.check == "machine.software" and one.level == "problem"]
    subject.close()
    assert len(found) == 1 and found[0].do
