"""A server for the sites of these tests."""

from tests.web.conftest import serve  # noqa: F401 (a fixture)
