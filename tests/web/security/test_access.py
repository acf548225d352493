"""Who may see, and what proves it: credentials, sessions, write tokens, loopback."""

from __future__ import annotations

import base64

import pytest

from lowkiq.environment import Credentials
from lowkiq.web.security.access import SESSION_SECONDS, Access, Caller, is_loopback_host

BOTH = Credentials(token="a-long-token", user="anna", password="a long pass:word")


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


class TestAuthorization:
    @pytest.mark.parametrize(
        ("header", "kind", "name"),
        [
            ("Bearer a-long-token", "bearer", ""),
            ("bearer  a-long-token ", "bearer", ""),
            (basic("anna:a long pass:word"), "basic", "anna"),
            (basic("anybody:a-long-token"), "basic", "token"),
            (basic(":a-long-token"), "basic", "token"),
        ],
    )
    def test_who_gives_the_credentials_is_let_in_by_a_name_that_is_true(
        self, header: str, kind: str, name: str
    ) -> None:
        caller = Access(BOTH).caller_by_header(header)
        assert caller is not None
        assert (caller.kind, caller.name) == (kind, name)

    @pytest.mark.parametrize(
        ("credentials", "name"), [(BOTH, ""), (Credentials(user="anna", password="long-enough"), "anna")]
    )
    def test_a_session_has_the_users_name_where_nobody_else_can_have_one(
        self, credentials: Credentials, name: str
    ) -> None:
        access = Access(credentials)
        caller = access.caller_by_session(access.new_session())
        assert caller is not None
        assert (caller.kind, caller.name) == ("session", name)

    @pytest.mark.parametrize(
        "header",
        ["", "Bearer", "Bearer ", "Bearer a-long-toke", "Bearer a-long-token2", "Bearer a long pass:word", "Basic",
         "Basic !!!", "Basic a-long-token", basic("anna"), basic("anna:"), basic("anna:a long pass:wor"),
         basic("bert:a long pass:word"), basic("a-long-token:"), "Digest a-long-token", "a-long-token",
         "Bearer \udcff", "Bearer ünicode"],
    )  # fmt: skip
    def test_everything_else_is_not(self, header: str) -> None:
        assert Access(BOTH).caller_by_header(header) is None

    def test_a_token_alone_has_no_password_and_no_empty_one(self) -> None:
        access = Access(Credentials(token="a-long-token"))
        assert access.caller_by_header(basic(":")) is None
        assert access.caller_by_header(basic("None:None")) is None
        assert not access.signs_in(token="", user="", password="")

    def test_without_a_token_the_empty_one_does_not_open(self) -> None:
        access = Access(Credentials(user="anna", password="long-enough"))
        assert access.caller_by_header("Bearer ") is None
        assert access.caller_by_header(basic("anybody:")) is None
        assert not access.signs_in(token="", user="anna", password="")

    def test_the_bearer_alone_needs_no_write_token_since_no_browser_sends_it_by_itself(self) -> None:
        assert not Caller("bearer").needs_token
        assert all(Caller(kind).needs_token for kind in ("basic", "session", "anyone"))


class TestSessions:
    def test_a_session_is_known_to_every_replica_with_the_same_credentials(self) -> None:
        one, other = Access(BOTH), Access(BOTH)
        caller = other.caller_by_session(one.new_session())
        assert caller is not None
        assert caller.kind == "session"
        assert one.cookie_name == other.cookie_name

    def test_other_credentials_end_it(self) -> None:
        cookie = Access(BOTH).new_session()
        assert Access(Credentials(token="another-token")).caller_by_session(cookie) is None

    def test_it_ends_after_its_time(self) -> None:
        now = 1_000_000.0
        access = Access(BOTH, now=lambda: now)
        cookie = access.new_session()
        now += SESSION_SECONDS - 1
        assert access.caller_by_session(cookie)
        now += 1
        assert access.caller_by_session(cookie) is None

    def test_a_changed_one_is_no_session(self) -> None:
        access = Access(BOTH)
        expires, nonce, signature = access.new_session().split(".")
        for forged in (
            f"{int(expires) + 1}.{nonce}.{signature}",
            f"{expires}.{'0' * 32}.{signature}",
            f"{expires}.{nonce}.{'0' * 64}",
            f"{expires}.{nonce}",
            f"{expires}.{nonce}.{signature}\n",
            f"٣{expires[1:]}.{nonce}.{signature}",
            "",
            "a.b.c",
        ):
            assert access.caller_by_session(forged) is None

    def test_two_are_never_equal(self) -> None:
        access = Access(BOTH)
        assert access.new_session() != access.new_session()

    def test_without_credentials_none_can_be_made_that_another_process_takes(self) -> None:
        cookie = Access(Credentials()).new_session()
        assert Access(Credentials()).caller_by_session(cookie) is None


class TestWriteTokens:
    def test_one_is_bound_to_its_session(self) -> None:
        access = Access(BOTH)
        one, other = (access.caller_by_session(access.new_session()) for _ in range(2))
        assert one and other
        assert access.is_write_token(one, access.write_token_of(one))
        assert not access.is_write_token(other, access.write_token_of(one))

    def test_one_of_a_kind_does_not_serve_another_kind(self) -> None:
        access = Access(BOTH)
        assert not access.is_write_token(Caller("basic"), access.write_token_of(Caller("anyone")))

    @pytest.mark.parametrize("token", ["", "0" * 64, "ünicode", "\udcff"])
    def test_a_guess_is_none(self, token: str) -> None:
        access = Access(Credentials())
        assert not access.is_write_token(Caller("anyone"), token)

    def test_it_is_no_session_signature(self) -> None:
        access = Access(BOTH)
        caller = access.caller_by_session(cookie := access.new_session())
        assert caller
        assert access.write_token_of(caller) not in cookie


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"])
def test_loopback_hosts(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.com", "localhost.evil.com", "127.0.0.1.evil.com", "evil.com:8080", "10.0.0.1", "localhost:8080@evil.com",
     "localhost evil.com", "[::2]", "localhost:", "localhost:99999999", "127.0.0.1\n", "::1"],
)  # fmt: skip
def test_other_hosts(host: str) -> None:
    assert not is_loopback_host(host)
