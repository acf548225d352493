"""The page on ordering: all can read its pictures, and its fenced write refuses an owner that was away."""

from __future__ import annotations

import re
import sqlite3
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest

from lowkiq.handlers import context
from tests.support import ROOT
from tests.typing.examples import blocks

PAGE = (ROOT / "docs/ordering.md").read_text("utf-8")
PICTURES = re.findall(r"!\[([^]]*)\]\((images/[^)]+\.svg)\)", PAGE)


def as_owner(epoch: int) -> None:
    """Has what runs here be told that it owns the shard with this epoch."""
    run: Any = SimpleNamespace(
        epoch=str(epoch),
        running=[],
        worker=SimpleNamespace(pushes="now"),
    )
    context.begin(run)


def test_the_fenced_write_refuses_an_older_epoch(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/ordering.md")
    module: dict[str, Any] = {}
    exec(block, module)
    save = module["save"]()
    for epoch, state in ((7, "new"), (8, "paid"), (7, "late"), (8, "sent")):
        variables = copy_context()
        variables.run(as_owner, epoch)
        variables.run(save.perform_one, "17", [state])
        if state == "late":
            assert sqlite3.connect("orders.db").execute("SELECT state, epoch FROM orders").fetchall() == [("paid", 8)]
    assert sqlite3.connect("orders.db").execute("SELECT state, epoch FROM orders").fetchall() == [("sent", 8)]


@pytest.mark.parametrize(("alternative", "picture"), PICTURES)
def test_a_picture_is_told_in_words_and_follows_the_reader_s_colours(alternative: str, picture: str) -> None:
    text = (ROOT / "docs" / picture).read_text("utf-8")
    assert len(alternative) > 40
    assert len(re.findall(r"<title id=\"title\">[^<]{10,}</title>\s*<desc id=\"desc\">[^<]{40,}</desc>", text)) == 1
    assert "prefers-color-scheme: dark" in text


def test_the_page_has_a_picture_of_each_rule() -> None:
    assert len(PICTURES) == 5


def test_the_arrows_from_ids_lead_to_their_shards() -> None:
    text = (ROOT / "docs/images/ordering-shards.svg").read_text("utf-8")
    ids = {int(y) - 5: id for y, id in re.findall(r'x="70" y="(\d+)">(\w+)</text>', text) if id != "ids"}
    shards = {int(y) - 5: int(number) for y, number in re.findall(r'y="(\d+)">shard (\d)</text>', text)}
    arrows = re.findall(r'd="M110 (\d+) 208 (\d+)"', text)
    assert len(arrows) == len(ids)
    assert {ids[int(start)]: shards[int(end)] for start, end in arrows} == {
        id: crc32(id.encode()) % len(shards) for id in ids.values()
    }
