"""
Pytest's plugin: the fixtures lowkiq_fake and lowkiq_redis. It imports Lowkiq when one of them is first asked for, so
that it costs nothing to other tests. docs/testing.md tells of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lowkiq import Lowkiq
    from lowkiq.testing import Fake
    from pytest_lowkiq.server import Server

OPTION = "lowkiq_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Makes the option known."""
    parser.addini(OPTION, "the application that lowkiq_fake is for: MODULE:ATTR", default="")


@pytest.fixture
def lowkiq_app(pytestconfig: pytest.Config) -> Lowkiq:
    """The application under test: that of the ini option lowkiq_app, unless a test's own fixture says another one."""
    from lowkiq.errors import AppNotFound  # noqa: PLC0415 (it costs nothing to those who don't ask for it)
    from lowkiq.importing import load_app  # noqa: PLC0415

    spec = str(pytestconfig.getini(OPTION))
    if not spec:
        pytest.fail(
            f'which application? Set {OPTION} = "shop.jobs:app" among pytest\'s options (pyproject.toml, pytest.ini), '
            "or write a fixture lowkiq_app that returns it",
            pytrace=False,
        )
    try:
        return load_app(spec)
    except AppNotFound as error:
        pytest.fail(f"{OPTION} = {spec}: {str(error).replace('-r', OPTION)}", pytrace=False)


@pytest.fixture
def lowkiq_fake(lowkiq_app: Lowkiq) -> Iterator[Fake]:
    """Collects what the application pushes during this test: `lowkiq.testing.fake(lowkiq_app)`."""
    from lowkiq import testing  # noqa: PLC0415

    with testing.fake(lowkiq_app) as jobs:
        yield jobs


@pytest.fixture(scope="session")
def _lowkiq_server() -> Iterator[Server]:
    """One for all tests that this process runs."""
    from pytest_lowkiq.server import NoServer, running  # noqa: PLC0415

    try:
        with running() as server:
            yield server
    except NoServer as error:
        pytest.skip(str(error))


@pytest.fixture
def lowkiq_redis(_lowkiq_server: Server) -> Server:
    """A real Redis of these tests alone, empty; its URL. Skips the test where there is no server to run."""
    _lowkiq_server.empty()
    return _lowkiq_server
