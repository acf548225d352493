"""What most commands have: options, and an example at the end of their help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

_WHICH = "The application, or its file; the current directory is importable."
Require = Annotated[str | None, typer.Option("-r", "--require", "--app", metavar="MODULE[:ATTR]", help=_WHICH)]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]

#: Command that has no longer help of its own → a command line that shows it.
EXAMPLES: Final[Mapping[str, str]] = {
    "new": "lowkiq new shop",
    "resume": "lowkiq resume OrderSync",
    "hold": 'lowkiq hold OrderSync 17 42 --reason "a customer called"',
    "release": "lowkiq release OrderSync 17 42",
    "stop-waiting": "lowkiq stop-waiting Report eu",
    "held": "lowkiq held OrderSync",
    "tenants": "lowkiq tenants OrderSync --limit 20",
    "unset": "lowkiq unset OrderSync concurrency",
    "settings": "lowkiq settings OrderSync -r shop.jobs",
    "find": 'lowkiq find "order-*" --limit 200',
    "jobs": "lowkiq jobs OrderSync --state retrying --tag eu --limit 200",
    "job": "lowkiq job OrderSync 17",
    "push": "lowkiq -r shop.jobs push OrderSync 17 '{\"total\": 5}' --delay 60",
    "undo": "lowkiq undo OrderSync 0123456789abcdef",
    "track": "lowkiq track OrderSync 17",
    "untrack": "lowkiq untrack OrderSync 17",
    "failures": "lowkiq failures OrderSync 17",
    "stats": "lowkiq stats --wide",
    "statistics": "lowkiq statistics OrderSync --days 7",
    "morgue list": "lowkiq morgue list OrderSync --limit 200",
    "morgue revive": 'lowkiq morgue revive OrderSync --error "Timeout: no answer"',
    "morgue delete": 'lowkiq morgue delete OrderSync --pattern "test-*"',
    "blocked list": "lowkiq blocked list OrderSync",
    "blocked retry": "lowkiq blocked retry OrderSync --all",
    "blocked skip": "lowkiq blocked skip OrderSync 17",
    "blocked delete": "lowkiq blocked delete OrderSync 17",
    "recurring list": "lowkiq recurring list Report",
    "recurring pause": 'lowkiq recurring pause Report eu "it is summer"',
    "recurring resume": "lowkiq recurring resume Report eu",
    "recurring remove": "lowkiq recurring remove Report eu",
    "recurring run-now": "lowkiq recurring run-now Report eu -r shop.jobs",
    "nodes quiet": "lowkiq nodes quiet 3 --wait",
    "nodes resume": "lowkiq nodes resume 3 --wait",
    "nodes restart": "lowkiq nodes restart 3 --wait",
    "nodes dump": "lowkiq nodes dump 3 --wait",
    "nodes forget": "lowkiq nodes forget web-7",
}


def add_examples(to: typer.Typer, prefix: str = "") -> None:
    """Has the help of each of these commands, and of the commands below them, end with an example."""
    for command in to.registered_commands:
        callback = command.callback
        name = command.name or (callback.__name__.replace("_", "-") if callback else "")
        if command.epilog is None and f"{prefix}{name}" in EXAMPLES:
            command.epilog = f"Example: {EXAMPLES[f'{prefix}{name}']}"
    for group in to.registered_groups:
        if group.typer_instance:
            add_examples(group.typer_instance, f"{group.name} ")
