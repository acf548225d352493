"""A node is quieted, dumped (read in the browser) and restarted from the page, and what was done stays to be read."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.support import wait_until


def test_a_node_is_quieted_dumped_and_restarted_from_the_page_and_the_incident_stays(shop, look):
    page = look(shop.enter("/nodes"), permissions=["clipboard-read", "clipboard-write"])
    node = next(node for node in shop.app.nodes().nodes if node.node_number == 2)
    shop.push("slow-1")

    def act(label):
        page.goto(f"{shop.url}/nodes")
        card = page.locator("article.node").filter(has_text=re.compile(r"Node 2 of"))
        card.get_by_role("button", name=label).click()
        expect(page.locator("h1")).to_contain_text(f"{label} node 2")
        page.get_by_role("button", name=f"{label} node 2").click()
        expect(page.locator(".hand .badge")).to_have_text("done")

    act("Quiet")
    page.goto(f"{shop.url}/nodes")
    expect(page.locator("article.node").filter(has_text="Node 2 of").locator(".badge").first).to_have_text("quiet")
    act("Dump")
    page.get_by_role("link", name="Read the dump", exact=True).click()
    expect(page.locator("pre.dump")).to_contain_text(node.node)
    expect(page.locator("pre.dump")).to_contain_text("MainThread")
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#copied")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").strip() == page.locator("pre.dump").inner_text().strip()
    page.get_by_role("link", name="Dumps", exact=True).click()
    expect(page.locator("main tbody tr")).to_contain_text(node.node)  # it is kept
    act("Resume")
    act("Restart")
    wait_until(lambda: any(one.node_number == 2 and one.pid != node.pid for one in shop.app.nodes().nodes))
    page.goto(f"{shop.url}/incidents?node={node.node}")
    for kind in ("quiet", "dump", "resume", "restart"):
        expect(page.locator(".incidents .badge", has_text=kind).first).to_be_visible()
    expect(page.locator(".incidents")).to_contain_text("session at")
    (shop.directory / "go").touch()
