"""Redaction: URLs without their passwords, for people and logs. Standard library only."""

from __future__ import annotations

import re
from typing import Final

#: Hosts, and the colon that is before no port of theirs, nor the word that stands for one in examples: what follows may
#: be a password, of a URL whose @ was forgotten.
_HOST: Final = r"(?:\[[^]]*\]|[^][/?,:]*)"
_NO_PORT: Final = re.compile(rf"((?:{_HOST}(?::\d{{1,5}})?,)*{_HOST}):(?!(?:\d{{1,5}}|port)(?:[,/?]|$))")


def redact(url: str) -> str:
    """The URL without its passwords."""
    url = re.sub(r"(?<=://)([^/@]*?):.*@", r"\1:***@", url) if "://" in url else re.sub(r"^.*@", "***@", url)
    scheme, mark, rest = url.rpartition("://")
    if "@" not in url and (odd := _NO_PORT.match(rest)):
        url = f"{scheme}{mark}{odd[1]}:***"
    return re.sub(r"(?i)([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", r"\1***", url)


def redact_text(text: str) -> str:
    """A text without the passwords of URLs that are in it, nor their users: a token may stand in a user's place."""
    text = re.sub(r"\S+://\S*[^\s.,:;)\"']", lambda url: redact(url[0]), text)
    return re.sub(r"(?<=://)[^/\s@]*@", "***@", text)
