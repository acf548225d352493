"""Variables of the environment: the list is whole, and what is nearly one of them is told, once."""

from __future__ import annotations

import re

import pytest

from lowkiq import settings
from lowkiq.variables import NAMES, misspelt
from lowkiq_supervisor.options import OPTIONS
from tests.support import ROOT


def test_every_setting_and_option_that_can_be_a_variable_is_known():
    of_settings = {name.upper() for name, (kind, _) in settings._RULES.items() if kind in {int, float, str, bool}}
    of_options = {name.upper() for name, option in OPTIONS.items() if option.parse is not None}
    assert {*of_settings, *of_options, "REDIS_URL", "STATE_DIR"} <= NAMES


def test_every_variable_of_the_code_is_known_and_no_other():
    sources = [*(ROOT / "lowkiq").rglob("*.py"), *(ROOT / "supervisor").rglob("*.py"), *(ROOT / "systemd").iterdir()]
    named = {
        name for path in sources for name in re.findall(r"\bLOWKIQ_([A-Z][A-Z_]*[A-Z])\b", path.read_text("utf-8"))
    }
    assert named - {"NAME"} <= NAMES
    of_settings = {name.upper() for name in settings._RULES}
    assert {name for name in NAMES - named - of_settings if name.lower() not in OPTIONS} == set()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LOWKIQ_REDIS_UR", "LOWKIQ_REDIS_URL"),
        ("LOWKIQ_REDISURL", "LOWKIQ_REDIS_URL"),
        ("LOWKIQ_THREADS_PER_NODES", "LOWKIQ_THREADS_PER_NODE"),
        ("LOWKIQ_POLL_INTERVALL", "LOWKIQ_POLL_INTERVAL"),
        ("LOWKIQ_DRAIN-TIMEOUT", "LOWKIQ_DRAIN_TIMEOUT"),
        ("lowkiq_namespace", "LOWKIQ_NAMESPACE"),
    ],
)
def test_what_is_nearly_one_is_told(name, meant):
    assert misspelt({name: "x", "LOWKIQ_NAMESPACE": "y", "PATH": "z"}) == {name: meant}


def test_names_of_others_are_left_alone():
    ours = dict.fromkeys(f"LOWKIQ_{name}" for name in NAMES)
    assert misspelt(ours | {"LOWKIQ_SHOP_DSN": "", "LOWKIQ_TEST_ROUNDS": "", "REDIS_UR": "", "LOWKIQ_": ""}) == {}
