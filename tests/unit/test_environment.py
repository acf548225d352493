"""The environment: numbers, the state directory, addresses and credentials."""

from __future__ import annotations

import pytest

from lowkiq import SettingsError
from lowkiq.environment import (
    Address,
    Credentials,
    ExitCode,
    Found,
    check_address,
    find_node_number,
    find_redis_url,
    is_loopback_address,
    parse_address,
    parse_node_number,
    parse_queues,
)

BOTH = Credentials(token="a-long-token", user="anna", password="a long pass:word")
TOKEN = {"LOWKIQ_WEB_TOKEN": "t" * 20}
PAIR = {"LOWKIQ_WEB_USER": "ann", "LOWKIQ_WEB_PASSWORD": "p" * 20}

#: No address, or no such host.
REFUSED = [
    "", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:http", "127.0.0.1:8080:1",
    "::1:8080", "[::1]", "[::1:8080", "[:::1]:8080", "[fe80::1%eth0]:8080", "http://127.0.0.1:8080",
    f"{'a' * 64}.example.com:8080", "٨٠٨٠", "127.0.0.1:٨٠", "127.0.0.1:80 80", "localhost", "a:b:80", "[evil]:80",
    "no.such.host.invalid:80",
]  # fmt: skip
#: What people may write, what it means (None: it is refused), and whether it needs credentials.
ADDRESSES: list[tuple[str, tuple[str, int] | None, bool]] = [
    ("127.0.0.1:8080", ("127.0.0.1", 8080), False),
    (" 127.0.0.1:8080 ", ("127.0.0.1", 8080), False),
    ("127.0.0.2:80", ("127.0.0.2", 80), False),
    ("127.1:80", ("127.0.0.1", 80), False),
    ("localhost:8080", ("127.0.0.1", 8080), False),
    ("LocalHost:8080", ("127.0.0.1", 8080), False),
    ("8080", ("127.0.0.1", 8080), False),
    ("[::1]:8080", ("::1", 8080), False),
    ("[0:0:0:0:0:0:0:1]:8080", ("::1", 8080), False),
    ("[::ffff:127.0.0.1]:8080", ("::ffff:127.0.0.1", 8080), False),
    (":8080", ("0.0.0.0", 8080), True),
    ("0.0.0.0:8080", ("0.0.0.0", 8080), True),
    ("[::]:8080", ("::", 8080), True),
    ("[::ffff:10.0.0.7]:8080", ("::ffff:10.0.0.7", 8080), True),
    ("10.0.0.7:8080", ("10.0.0.7", 8080), True),
    ("127.0.0.2:0", ("127.0.0.2", 0), False),
    ("192.168.1.5:65535", ("192.168.1.5", 65535), True),
    *((text, None, False) for text in REFUSED),
]

#: The environment, and whether it opens the view to those who know something; None: it is refused.
CREDENTIALS: list[tuple[dict[str, str], bool | None]] = [
    ({}, False),
    (TOKEN, True),
    (PAIR, True),
    (TOKEN | PAIR, True),
    ({"LOWKIQ_WEB_TOKEN": ""}, False),
    ({"LOWKIQ_WEB_USER": "", "LOWKIQ_WEB_PASSWORD": ""}, False),
    ({"LOWKIQ_WEB_TOKEN": "t" * 8}, True),
    ({"LOWKIQ_WEB_TOKEN": "t" * 7}, None),
    ({"LOWKIQ_WEB_USER": "ann"}, None),
    ({"LOWKIQ_WEB_PASSWORD": "p" * 20}, None),
    (TOKEN | {"LOWKIQ_WEB_USER": "ann"}, None),
    (PAIR | {"LOWKIQ_WEB_PASSWORD": "p" * 7}, None),
    (PAIR | {"LOWKIQ_WEB_USER": "a:b"}, None),
]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (" 1 ", 1),
        ("jobs-1", 1),
        ("shop-jobs-12", 12),
        *((text, None) for text in ("-1", "jobs1", "1.5", "٣")),
    ],
)
def test_a_node_number_is_one_or_a_name_that_ends_in_one(text: str, number: int | None) -> None:
    found = find_node_number(None, {"NODE_NUMBER": text})
    assert found
    if number is not None:
        assert parse_node_number(found) == number
    else:
        with pytest.raises(SettingsError, match=f"NODE_NUMBER is '{text}': .* such as jobs-3"):
            parse_node_number(found)


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("mail", {"mail": None}),
        (" mail , video,,mail", {"mail": None, "video": None}),
        ("critical=8,default=1", {"critical": 8, "default": 1}),
        ("critical = 1000, default", {"critical": 1_000, "default": None}),
        ("a=2,a=2", {"a": 2}),
    ],
)
def test_queues_are_named_with_or_without_weights(text: str, queues: dict[str, int | None]) -> None:
    assert parse_queues(Found(text, "--queues")) == queues


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (" , ", "name queues, separated by commas"),
        ("critical=", "the weight of critical is '', it must be an integer from 1 to 1,000, such as critical=8"),
        ("=8", "'=8' names no queue: say NAME or NAME=WEIGHT"),
        ("=", "'=' names no queue"),
        *(
            (f"a={weight}", f"the weight of a is '{weight}'")
            for weight in ("0", "-1", "1e9", "1001", "8=9", "٣", "1.5")
        ),
        ("a=1,a=2", "a is named twice: give it one weight"),
        ("a,b=3,a=1", "a is named twice"),
    ],
)
def test_weights_that_can_not_be_are_refused(text: str, refusal: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse_queues(Found(text, "LOWKIQ_QUEUES"))
    assert str(refused.value).startswith(f"LOWKIQ_QUEUES is {text!r}: {refusal}")


def test_an_option_wins_over_lowkiq_s_variable_over_the_common_one() -> None:
    environ = {"NODE_NUMBER": "1", "LOWKIQ_NODE_NUMBER": "2", "REDIS_URL": "redis://a", "LOWKIQ_REDIS_URL": ""}
    assert [str(find_node_number(given, environ)) for given in ("3", None)] == [
        "--node-number=3",
        "LOWKIQ_NODE_NUMBER=2",
    ]
    assert find_redis_url(environ) == ("redis://a", "REDIS_URL")


def test_exit_codes_never_change() -> None:
    """Units, charts and scripts have them as numbers."""
    assert [*ExitCode] == [0, 1, 2, 3, 4, 5, 75, 130]


@pytest.mark.parametrize(("text", "address", "_"), ADDRESSES)
def test_addresses_are_written_as_people_do(text: str, address: tuple[str, int] | None, _: bool) -> None:
    if address is None:
        with pytest.raises(SettingsError, match=r"can't listen at .*: (give HOST:PORT, such as|there is no such)"):
            parse_address(text)
    else:
        assert parse_address(text) == Address(*address)


def test_addresses_print_as_urls_have_them() -> None:
    assert str(Address("::1", 80)) == "[::1]:80"
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"


@pytest.mark.parametrize(("text", "address", "is_open"), [case for case in ADDRESSES if case[1]])
def test_an_open_address_needs_credentials_or_a_word(text: str, address: tuple[str, int], is_open: bool) -> None:
    found = parse_address(text)
    assert found.is_public is is_open
    if is_open:
        with pytest.raises(SettingsError, match=r"is open to other machines: set LOWKIQ_WEB_TOKEN, or .* --no-auth"):
            check_address(found, Credentials(), no_auth=False)
    else:
        check_address(found, Credentials(), no_auth=False)
    for environ, no_auth in ((TOKEN, False), (PAIR, False), ({}, True)):
        check_address(found, Credentials.find(environ), no_auth=no_auth)


def test_loopback_addresses_are_told_from_others() -> None:
    others = [
        "10.0.0.1",
        "0.0.0.0",
        "::",
        "::ffff:10.0.0.1",
        "::2",
        "localhost",
        "",
        "127.0.0.1, 10.0.0.1",
        "testclient",
    ]
    loopback = ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"]
    assert [text for text in [*others, *loopback] if is_loopback_address(text)] == loopback


@pytest.mark.parametrize(("environ", "is_known"), CREDENTIALS)
def test_credentials_of_the_environment(environ: dict[str, str], is_known: bool | None) -> None:
    if is_known is None:
        with pytest.raises(SettingsError, match="LOWKIQ_WEB_"):
            Credentials.find(environ)
    else:
        assert bool(Credentials.find(environ)) is is_known


class TestCredentials:
    def test_given_ones_replace_the_whole_of_the_environment(self) -> None:
        environment = {"LOWKIQ_WEB_USER": "anna", "LOWKIQ_WEB_PASSWORD": "long-enough"}
        assert Credentials.find(environment) == Credentials(None, "anna", "long-enough")
        assert Credentials.find(environment, token="a-long-token") == Credentials("a-long-token")

    def test_empty_ones_are_none(self) -> None:
        assert not Credentials.find({"LOWKIQ_WEB_TOKEN": "", "LOWKIQ_WEB_USER": "", "LOWKIQ_WEB_PASSWORD": ""})

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"user": "anna"}, "a user but no password"),
            ({"password": "long-enough"}, "a password but no user"),
            ({"token": "short"}, "token has 5 characters, it must have 8 or more"),
            ({"user": "anna", "password": "short"}, "password has 5 characters"),
            ({"user": "an:na", "password": "long-enough"}, "colon"),
            ({"token": "with-a-line-end\n"}, "line end"),
            ({"token": "tökentöken"}, "beyond ASCII"),
            ({"user": "anna", "password": "long-enough\n"}, "LOWKIQ_WEB_PASSWORD"),
        ],
    )
    def test_what_can_not_work_is_refused_with_a_way_out(self, fields: dict[str, str], message: str) -> None:
        with pytest.raises(SettingsError, match=message):
            Credentials(**fields)  # type: ignore[arg-type]

    def test_nothing_of_them_is_printed(self) -> None:
        assert repr(BOTH) == "Credentials()"

    def test_a_refusal_does_not_tell_the_secret(self) -> None:
        with pytest.raises(SettingsError) as refusal:
            Credentials(token="hunter2")
        assert "hunter2" not in str(refusal.value)
