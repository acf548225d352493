"""The `web` command."""

from __future__ import annotations

import signal
from typing import Annotated, Final

import typer

from lowkiq.cli.given import Require
from lowkiq.cli.opening import configure_log, fail, leave, opened_app
from lowkiq.environment import ExitCode, parse_address
from lowkiq.process.signals import disarm

WEB_EPILOG: Final = """\b
Examples:
  lowkiq web -r shop.jobs                                logs a link for a browser on this machine
  LOWKIQ_WEB_TOKEN=… lowkiq web -r shop.jobs --bind :8080
  LOWKIQ_WEB_USER=… LOWKIQ_WEB_PASSWORD=… lowkiq web --bind 10.0.0.5:8080 --read-only
  lowkiq web --bind :8080 --no-auth                      behind something that decides who gets here

\b
Where other machines can reach it, it wants credentials, from the environment: a command line shows in ps. Without any
it makes up a token, and logs a link with it. With --no-auth, LOWKIQ_WEB_HOSTS lists the names it answers to, beside
addresses. Without -r it knows only where Redis is, which is enough to see and act. LOWKIQ_WEB_PROXIES lists addresses
of proxies that are believed: what they tell of the path (X-Forwarded-Prefix) and, with --no-auth, of who somebody is.
"""


def web(
    context: typer.Context,
    require: Require = None,
    bind: Annotated[str, typer.Option(metavar="[HOST:]PORT", help="Where to listen.")] = "127.0.0.1:8080",
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    no_payloads: Annotated[bool, typer.Option("--no-payloads", help="Show sizes of payloads only.")] = False,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Whoever reaches it may see and act; something else protects it.")
    ] = False,
    root_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Where a proxy has it: /lowkiq. [LOWKIQ_WEB_ROOT_PATH]")
    ] = None,
) -> None:
    """Serves the web view: queues, nodes and jobs in a browser, an API, /metrics. TERM and INT end it."""
    try:
        from lowkiq.web import server  # noqa: PLC0415 (an extra, which other commands do without)
    except ModuleNotFoundError as error:
        fail(f"the web view needs {error.name}: pip install 'lowkiq[web]'", ExitCode.USAGE)
    with opened_app(require or context.obj) as app:
        configure_log()
        disarm(but=(signal.SIGHUP,))
        code = server.serve(
            app,
            parse_address(bind),
            read_only=read_only,
            payloads=not no_payloads,
            no_auth=no_auth,
            root_path=root_path,
        )
    leave(code)
