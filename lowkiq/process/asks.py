"""What a node asks of its supervisor through the beat pipe, in place of a state. Imports nothing but `re`."""

from __future__ import annotations

import re

#: Before the id of a request: the node's slot is to be filled anew, as `lowkiq-supervisor restart N` does.
RESTART_ME = "restart_me:"
#: A request as it must be.
IS_ASK = re.compile(rf"{RESTART_ME}([0-9a-f]{{16}})")
