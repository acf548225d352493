"""Options and variables, and the refusals of those that can't be used."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lowkiq.environment import Address
from lowkiq.errors import SettingsError
from lowkiq_supervisor import parsing
from lowkiq_supervisor.options import Options


def resolve(environ: dict[str, str] | None = None, **given: Any) -> Options:
    return Options.resolve(app="shop", environ=environ or {}, **given)


def numbers(options: Options) -> tuple[int, int]:
    return options.first_node, options.number_of_nodes


def test_alone_the_nodes_here_are_all_nodes() -> None:
    assert numbers(resolve(nodes="4")) == (0, 4)


@pytest.mark.parametrize("ordinal", ["1", "jobs-1", "shop-jobs-1", " 1 "])
def test_the_machine_s_number_may_be_a_name_that_ends_in_it(ordinal: str) -> None:
    assert numbers(resolve({"NODE_NUMBER": ordinal, "NUMBER_OF_NODES": "8"}, nodes="4")) == (4, 8)


def test_option_wins_over_own_variable_over_plain_one() -> None:
    environ = {"NODE_NUMBER": "1", "LOWKIQ_NODE_NUMBER": "2", "LOWKIQ_NUMBER_OF_NODES": "9", "NUMBER_OF_NODES": "5"}
    assert numbers(resolve(environ)) == (2, 9)
    assert numbers(resolve(environ, node_number="3")) == (3, 9)


def test_an_empty_variable_counts_as_unset() -> None:
    environ = {"NODE_NUMBER": "", "NUMBER_OF_NODES": "", "REDIS_URL": "", "LOWKIQ_DRAIN_TIMEOUT": ""}
    options = resolve(environ, nodes="2")
    assert (*numbers(options), options.redis_url, options.drain_timeout) == (0, 2, None, 25.0)


def test_another_number_of_nodes_is_fine_on_the_first_machine() -> None:
    assert numbers(resolve({"NODE_NUMBER": "0", "NUMBER_OF_NODES": "6"}, nodes="4")) == (0, 6)


@pytest.mark.parametrize(
    ("environ", "given", "message"),
    [
        ({}, {"nodes": "0"}, r"--nodes is '0': give a number from 1 to 1,000, auto .* such as 2\.\.8"),
        ({}, {"nodes": "1001"}, "--nodes is '1001'"),
        ({"LOWKIQ_NODES": "many"}, {}, "LOWKIQ_NODES is 'many'"),
        ({}, {"nodes": "8..2"}, r"--nodes is '8\.\.2': .* lower number first"),
        ({}, {"nodes": "0..2"}, r"'0\.\.2'"),
        ({}, {"nodes": "2.."}, r"'2\.\.'"),
        ({}, {"nodes": "2-8"}, "'2-8'"),
        ({}, {"nodes": "2..1001"}, r"'2\.\.1001'"),
        (
            {"NODE_NUMBER": "0"},
            {"nodes": "2..8"},
            r"--nodes 2\.\.8, but NODE_NUMBER=0 numbers .* Unset NODE_NUMBER",
        ),
        ({"NUMBER_OF_NODES": "8"}, {"nodes": "auto"}, "--nodes auto, but NUMBER_OF_NODES=8 .* give --nodes a number"),
        ({}, {"nodes": "1..2", "burst": True}, r"--nodes 1\.\.2 goes by the load, and --burst ends"),
        ({"NODE_NUMBER": "one"}, {}, "NODE_NUMBER is 'one': .* such as jobs-3"),
        ({"NODE_NUMBER": "-1"}, {}, "NODE_NUMBER is '-1'"),
        ({"NUMBER_OF_NODES": "0"}, {}, "NUMBER_OF_NODES is '0': .* integer from 1"),
        ({"LOWKIQ_NUMBER_OF_NODES": "4.5"}, {}, "LOWKIQ_NUMBER_OF_NODES is '4.5'"),
        ({"NODE_NUMBER": "jobs-1"}, {"nodes": "4"}, "NODE_NUMBER=jobs-1 says .* set NUMBER_OF_NODES"),
        ({"NUMBER_OF_NODES": "8"}, {"nodes": "4"}, "NUMBER_OF_NODES=8, but --nodes 4 .* set NODE_NUMBER"),
        ({}, {"node_number": "2", "number_of_nodes": "8", "nodes": "4"}, "runs nodes 8 to 11, .* allows 0 to 7"),
        ({}, {"number_of_nodes": "2", "nodes": "4"}, "--number-of-nodes=2, but --nodes 4"),
        ({}, {"drain_timeout": "soon"}, "--drain-timeout is 'soon': give seconds"),
        ({"LOWKIQ_DRAIN_TIMEOUT": "-1"}, {}, "LOWKIQ_DRAIN_TIMEOUT is '-1'"),
        ({}, {"drain_timeout": "inf"}, "'inf'"),
        ({}, {"drain_timeout": "nan"}, "'nan'"),
        ({}, {"max_rss": "much"}, "--max-rss is 'much': give a size such as 512M"),
        ({"LOWKIQ_MAX_RSS": "0"}, {}, "LOWKIQ_MAX_RSS is '0'"),
        ({}, {"max_jobs": "0"}, "--max-jobs is '0': give a number from 1"),
        ({}, {"max_jobs": "1.5"}, "--max-jobs is '1.5'"),
        ({}, {"max_age": "1y"}, "--max-age is '1y': give a time such as 90s"),
        ({}, {"hang_timeout": "-1"}, "--hang-timeout is '-1': give seconds"),
        ({"LOWKIQ_BOOT_TIMEOUT": "x"}, {}, "LOWKIQ_BOOT_TIMEOUT is 'x'"),
    ],
)
def test_what_can_t_be_used_is_named_with_the_way_out(
    environ: dict[str, str], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        resolve(environ, **given)


def test_nodes_may_be_a_number_or_a_range_and_the_variable_says_the_same() -> None:
    found = resolve(nodes="2..8")
    assert (found.nodes, found.is_elastic, found.node_range) == (2, True, ("2..8", 2, 8))
    assert resolve({"LOWKIQ_NODES": "3..4"}).nodes == 3
    assert resolve({"LOWKIQ_NODES": "3..4"}, nodes="2").node_range is None
    assert (resolve().nodes, resolve().node_range) == (1, None)


def test_auto_is_one_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "usable_cores", lambda: 6)
    found = resolve(nodes="auto")
    assert (found.nodes, found.number_of_nodes, found.node_range) == (6, 6, None)


def test_redis_comes_from_lowkiq_s_variable_before_the_common_one() -> None:
    assert resolve({"REDIS_URL": "redis://a"}).redis_url == "redis://a"
    assert resolve({"REDIS_URL": "redis://a", "LOWKIQ_REDIS_URL": "redis://b"}).redis_url == "redis://b"


def test_state_directory_is_absolute_and_found_in_the_designed_order() -> None:
    everything = {"LOWKIQ_STATE_DIR": "/own", "RUNTIME_DIRECTORY": "/run/a:/run/b"}
    assert resolve(everything, state_dir="/given").state_dir == Path("/given")
    assert resolve(everything).state_dir == Path("/own")
    assert resolve({"RUNTIME_DIRECTORY": "/run/a:/run/b"}).state_dir == Path("/run/a")
    assert resolve().state_dir == Path.cwd() / ".lowkiq"


def test_nodes_are_told_the_drain_timeout() -> None:
    assert resolve(drain_timeout="7.5").node_environment()["LOWKIQ_DRAIN_TIMEOUT"] == "7.5"


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("1.5G", 3 << 29), ("2048k", 2 << 20), ("64 MiB", 64 << 20), ("2000000", 2_000_000)],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert resolve(max_rss=text).max_rss == size


@pytest.mark.parametrize(
    ("text", "meant"), [("5", "5M"), ("512", "512M"), ("1000", "1000M"), ("100k", "100M"), ("0.5 KiB", "0.5M")]
)
def test_a_size_that_no_node_can_have_has_lost_its_unit(text: str, meant: str) -> None:
    """Of five bytes each node was too large, and replaced for ever."""
    with pytest.raises(SettingsError, match=rf"--max-rss is '{text}': .* did you mean {meant}\?"):
        resolve(max_rss=text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("6h", 21600), ("1.5d", 129600)])
def test_ages_have_units(text: str, seconds: float) -> None:
    assert resolve({"LOWKIQ_MAX_AGE": text}).max_age == seconds


def test_nothing_is_recycled_unless_asked_for_and_silence_has_limits() -> None:
    options = resolve()
    assert (options.max_rss, options.max_jobs, options.max_age) == (None, None, None)
    assert (options.hang_timeout, options.boot_timeout) == (30, 120)
    assert resolve(hang_timeout="0", max_jobs="10000").max_jobs == 10000


TOKEN = {"LOWKIQ_WEB_TOKEN": "t" * 20}


@pytest.mark.parametrize(
    ("environ", "given", "message"),
    [
        ({}, {"web": "127.0.0.1"}, "--web '127.0.0.1': give HOST:PORT, such as"),
        ({}, {"web": f"{'a' * 64}.example.com:8080"}, "--web .*: there is no such host"),
        # A port of the system's choice would be another after every restart.
        ({}, {"web": "127.0.0.1:0"}, r"--web 127\.0\.0\.1:0: the port would be another"),
        ({}, {"web": ":80"}, "--web :80 is open to other machines: set LOWKIQ_WEB_TOKEN, or .* --web-no-auth"),
        ({"LOWKIQ_WEB_TOKEN": "t" * 7}, {"web": "127.0.0.1:80"}, "LOWKIQ_WEB_TOKEN has 7 characters"),
        ({"LOWKIQ_WEB_USER": "ann"}, {"web": ":80"}, "set both LOWKIQ_WEB_USER and LOWKIQ_WEB_PASSWORD"),
        ({}, {"web_read_only": True}, r"--web-read-only is for the web view: add .* --web 127\.0\.0\.1:8080"),
        ({}, {"web_no_payloads": True}, "--web-no-payloads is for the web view"),
        ({}, {"web_no_auth": True}, "--web-no-auth is for the web view"),
    ],
)
def test_a_view_that_would_be_open_or_unreachable_is_refused(
    environ: dict[str, str], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as refusal:
        resolve(environ, **given)
    assert "ttt" not in str(refusal.value), "a secret"


def test_a_view_with_credentials_or_a_word_may_be_open_and_its_flags_arrive() -> None:
    assert resolve({"LOWKIQ_WEB_TOKEN": "short"}).web is None
    assert resolve(TOKEN, web=":8080").web == Address("0.0.0.0", 8080)
    found = resolve(web="[::1]:8080", web_read_only=True, web_no_payloads=True)
    assert (found.web, found.web_read_only, found.web_no_payloads) == (Address("::1", 8080), True, True)
    assert resolve(web="10.0.0.7:80", web_no_auth=True).web_no_auth


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    with pytest.raises(SettingsError, match=r"--web 8080 needs uvicorn: pip install 'lowkiq\[web\]'"):
        resolve(web="8080")
