"""The pages are in plain English: sentences of 30 words at most, and none of the words that readers had to decode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

LONGEST = 30
#: What is not to be written → what to write instead.
TERMS = {
    r"\bat once\b": "immediately, or at the same time",
    r"\b(?:is|are|was|were|be|been) (?:told|noted|rung|said)\b": "say who tells whom, or: is recorded, is notified",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\b(?:to|may|can|must) bear\b": "tolerate",
    r"\bdeeds?\b": "action",
    r"\bwhoever\b": "name them: the node, the person",
    r"\bhas (?:it|them|jobs|ids|what) be\b": "say it directly: pushes jobs",
    r"\b(?:say|says|said) goodbye\b": "deregister",
    r"\bof yours do\b": "your code does",
    r"(?:^|[.:;] )(?:What|Those that|One that|That which) (?![^.?!]*\?)": "a noun first: the job that",
    r"(?:^|[.:;] )Of an? [^,.]{3,60}, ": "the usual order of words",
    r"\bbe it\b": "whether",
    r"\bevil\b": "leave it out",
}
#: Pages that are to be rewritten yet, and what was said at its time. A new page is not one of them.
NOT_YET = frozenset({"changelog.md"})
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Paragraphs and items of lists, each with the line where it begins; no code, no tables, and nothing that is folded."""
    text = re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"), flags=re.S | re.M)
    text = re.sub(r"<(picture|details|!--).*?(</picture>|</details>|-->)", lambda tag: "\n" * tag[0].count("\n"), text, flags=re.S)
    number, at, words = 0, 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        begins = re.match(r"(?:[-*>]|\d+\.) ", stripped)
        if words and (not stripped or begins or stripped[0] in "#|"):
            yield at, plain(" ".join(words))
            words = []
        if stripped and stripped[0] not in "#|":
            at = at if words else number
            words.append(stripped[begins.end() :] if begins else stripped)


def plain(text: str) -> str:
    """As one reads it: code is a word, which may begin a sentence, and of a link there is its text."""
    text = re.sub(r"<[^>]+>", "", re.sub(r"``?[^`]+``?", "Code", text))
    return re.sub(r"\*\*|\*", "", re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text))


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?:;])[)\"]? +(?=[A-Z\d(\"])|(?<=[:;]) +", text)


def findings(page: Path) -> list[str]:
    found = []
    for number, text in prose(page):
        for sentence in sentences(text):
            if (length := len(re.findall(r"[\w'’]+", sentence))) > LONGEST:
                found.append(f"{page.name}:{number}: {length} words: {sentence[:90]}")
        for term, instead in TERMS.items():
            for met in re.finditer(term, text, re.IGNORECASE if term.islower() else 0):
                found.append(f"{page.name}:{number}: {met[0]!r}; better: {instead}")
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in NOT_YET], ids=lambda page: page.name)
def test_the_page_is_in_plain_english(page: Path) -> None:
    assert findings(page) == []


def test_what_is_rewritten_is_on_the_list_no_more() -> None:
    assert {page.name for page in PAGES} >= NOT_YET
    assert [page.name for page in PAGES if page.name in NOT_YET and not findings(page)] == []
