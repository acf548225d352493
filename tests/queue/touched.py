"""Touched: how many words and elements a script's commands take and give, which tells whether its work is bounded."""

from __future__ import annotations

from typing import Any, Final

import pytest
from redis import Redis

from lowkiq.queue import scripts
from lowkiq.queue.call import Call, Caller

#: Where scripts count; no shard has such a key.
KEY: Final = "touched"

#: Stands for `redis` in each script. Commands that give a number may have touched as many elements, where these say so.
COUNTING: Final = """local redis = (function(server)
  local MANY = {ZREMRANGEBYSCORE = true, ZREMRANGEBYRANK = true, ZUNIONSTORE = true, SUNIONSTORE = true, DEL = true}
  local function size(found)
    if type(found) == 'string' then return 1 + math.floor(#found / 1000) end -- a long text is many words
    if type(found) ~= 'table' then return 1 end
    local all = 0
    for _, one in ipairs(found) do all = all + size(one) end
    return all
  end
  local function counted(command)
    return function(...)
      local found = server[command](...)
      local touched = select('#', ...) + (MANY[...] and found or size(found))
      server.call('INCRBY', 'touched', string.format('%d', touched))
      return found
    end
  end
  return setmetatable({call = counted('call'), pcall = counted('pcall')}, {__index = server})
end)(redis)
"""


def count_in_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each script that is loaded from here on count what it touches."""
    read = scripts._read

    def counting(path: str) -> str:
        source = read(path)
        if "/includes/" in path:
            return source
        head = scripts.MAKES_ROOM if source.startswith(scripts.MAKES_ROOM) else ""
        return head + COUNTING + source.removeprefix(head)

    monkeypatch.setattr(scripts, "_read", counting)


def touched(redis: Redis, caller: Caller, call: Call[Any]) -> int:
    """How much that call touches."""
    redis.unlink(KEY)
    (result,) = caller.run_all([call])
    if isinstance(result, Exception):
        raise result
    return int(redis.get(KEY) or 0)
