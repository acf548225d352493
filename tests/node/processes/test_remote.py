"""A node that nobody supervises is asked through Redis."""

from __future__ import annotations

import signal

from lowkiq.admin.beats.hands import ask, read_hand
from tests.node.nodes import Nodes
from tests.support import wait_until


def test_without_a_supervisor_a_restart_is_refused_with_what_to_do_and_quiet_is_done(one_shard: Nodes) -> None:
    app, node = one_shard.app, one_shard.start().wait_ready()
    wait_until(lambda: app.nodes().nodes)
    name = app.nodes().nodes[0].node

    def over(action):
        request = ask(app.caller, app.settings.namespace, name, action, "a test")

        def read():
            return read_hand(app.caller, app.settings.namespace, request.id)[1]

        wait_until(lambda: read().is_over)
        return read()

    refused = over("restart")
    assert refused.state == "refused"
    assert "no supervisor" in refused.says
    assert over("quiet").state == "done"
    node.send(signal.SIGTERM)
    assert node.wait() == 0
