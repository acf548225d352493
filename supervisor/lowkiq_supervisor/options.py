"""
The options: one table of what can be asked for, which the command line is made from; everything is validated once,
before anything is started.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

from lowkiq import environment
from lowkiq.environment import Address, Credentials, Found
from lowkiq.errors import SettingsError
from lowkiq_supervisor import parsing
from lowkiq_supervisor.directory import Links, linked
from lowkiq_supervisor.parsing import NodeCount
from lowkiq_supervisor.restart_policy import RestartMode

#: Seconds running jobs have to finish; the same default as the library's, and below Kubernetes' 30 s.
DEFAULT_DRAIN_TIMEOUT = 25.0
#: Seconds that a successor must stay ready before the next node is replaced: bad code shows in its first jobs.
DEFAULT_SOAK = 10.0
#: Seconds without a beat, of which a node sends one a second, after which it counts as hung.
DEFAULT_HANG_TIMEOUT = 30.0
#: The same for a node that has not been ready yet: imports of large applications don't beat.
DEFAULT_BOOT_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command line, as --help shows it."""

    help: str
    #: Stands for its text; None: a flag, a number or a choice, which the command line itself reads.
    metavar: str | None = None
    #: Makes a value of its text, or of that of LOWKIQ_<NAME>; None: `Options.resolve` does.
    parse: Callable[[Found], Any] | None = None
    #: Its names, if they aren't made of the field's.
    names: tuple[str, ...] = ()
    #: Accepted for those who give it still.
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Validated options; `Options.resolve` makes them from what was given."""

    app: Annotated[
        str, Option("The module with the Lowkiq app, or its file.", "MODULE[:ATTR]", names=("--require", "-r", "--app"))
    ]
    nodes: Annotated[
        int,
        Option(
            "How many nodes (processes) to run here: a number, auto for one a core, or a range such as 2..8, within "
            "which it goes by the load. [default: 1]",
            "N|auto|A..B",
            parsing.nodes,
        ),
    ] = 1
    burst: Annotated[bool, Option("Exit 0 once nothing is due or in flight.")] = False
    node_number: Annotated[
        int | None, Option("This machine's number, from 0, or a name like jobs-3. [env: NODE_NUMBER]", "N")
    ] = None
    number_of_nodes: Annotated[
        int, Option("All nodes on all machines. [env: NUMBER_OF_NODES] [default: --nodes]", "N")
    ] = 1
    queues: Annotated[
        Mapping[str, int | None] | None,
        Option("Run these queues only; default: all. A=8,B=1 shares threads out.", "A,B", environment.parse_queues),
    ] = None
    threads: Annotated[
        int | None, Option("Threads of a node, instead of threads_per_node.", "N", environment.parse_threads)
    ] = None
    drain_timeout: Annotated[float, Option("How long running jobs may take to finish.", "SECONDS", parsing.seconds)] = (
        DEFAULT_DRAIN_TIMEOUT
    )
    restart: Annotated[RestartMode, Option("Which nodes that ended to start again.")] = RestartMode.ALWAYS
    strict: Annotated[bool, Option("End all when one node fails five times within a minute (exit 4).")] = False
    degraded: Annotated[bool, Option("What it asked for is how it is.", hidden=True)] = False
    soak: Annotated[
        float, Option("How long a successor must stay ready before the next is replaced.", "SECONDS", parsing.seconds)
    ] = DEFAULT_SOAK
    preload: Annotated[
        bool, Option("Import the app once, before forking: saves memory. A restart by HUP keeps the old code.")
    ] = False
    reload: Annotated[
        bool, Option("For development: replace the nodes when a Python file in this directory changes.")
    ] = False
    hang_timeout: Annotated[
        float, Option("Silence after which a node is killed; 0: never.", "SECONDS", parsing.seconds)
    ] = DEFAULT_HANG_TIMEOUT
    boot_timeout: Annotated[float, Option("The same until it is ready.", "SECONDS", parsing.seconds)] = (
        DEFAULT_BOOT_TIMEOUT
    )
    max_rss: Annotated[
        int | None, Option("Replace a node above about this memory, such as 512M.", "SIZE", parsing.memory)
    ] = None
    max_jobs: Annotated[int | None, Option("Replace a node after about so many jobs.", "N", parsing.count)] = None
    max_age: Annotated[
        float | None, Option("Replace a node after about this time, such as 6h.", "TIME", parsing.duration)
    ] = None
    no_embedded_redis: Annotated[
        bool, Option("Start no private Redis: the app names its own by Lowkiq(redis_url=…).")
    ] = False
    state_dir: Annotated[
        Path,
        Option("For the control socket and the private Redis. [env: LOWKIQ_STATE_DIR] [default: .lowkiq]", "DIR"),
    ] = Path(".lowkiq")
    log_file: Annotated[
        Path | None,
        Option("Write the log here instead of to stderr; made again when moved away.", "PATH", parsing.path),
    ] = None
    web: Annotated[
        Address | None, Option("Serve the web view here. Others than this machine need credentials.", "HOST:PORT")
    ] = None
    web_read_only: Annotated[bool, Option("Only show: no actions on jobs.")] = False
    web_no_payloads: Annotated[bool, Option("Show payloads' sizes only.")] = False
    web_no_auth: Annotated[bool, Option("Let everybody in: something else protects the web view.")] = False

    #: Number of the first node here; the others follow.
    first_node: int = 0
    #: Nobody has numbered the nodes: they share the shards among themselves.
    is_elastic: bool = False
    #: The range of how many nodes there may be; None: as many as asked for.
    node_range: NodeCount | None = None
    #: None: no Redis was named, so the supervisor brings its own.
    redis_url: str | None = None
    #: The variables by which nodes find the directory of their code, if a link leads there; and links that they don't.
    linked: Mapping[str, str] = field(default_factory=dict)
    links: Links = field(default_factory=Links)

    @classmethod
    def resolve(cls, *, environ: Mapping[str, str], **given: Any) -> Options:
        """Options as given, else from the environment, else defaults. `given` has texts where an option parses them."""
        if given.get("app") is None:
            raise SettingsError("--require is missing: name the module with the app, such as -r shop.jobs")
        for name, option in OPTIONS.items():
            if option.parse is not None:
                found = environment.find(flag(name), given.pop(name, None), environ)
                given |= {name: option.parse(found)} if found else {}
        _check_reload(given)
        count = given.pop("nodes", None) or NodeCount("1", 1, 1)
        url = environment.find_redis_url(environ)
        return cls(
            **given
            | _numbers(count, given.get("node_number"), given.get("number_of_nodes"), environ)
            | {
                "nodes": count.least,
                "node_range": _range(count, is_burst=given.get("burst", False)),
                "state_dir": environment.state_directory(environ, given.get("state_dir")).absolute(),
                "web": _web_address(given, environ),
                "redis_url": url.text if url else None,
                "linked": linked(environ),
                "links": Links.here(environ),
            }
        )

    def node_environment(self) -> dict[str, str]:
        """The variables of nodes besides the supervisor's own."""
        own = {"LOWKIQ_DRAIN_TIMEOUT": f"{self.drain_timeout:g}", "LOWKIQ_STATE_DIR": str(self.state_dir)}
        return {**own, **self.linked}


#: The table, by the fields' names.
OPTIONS: Mapping[str, Option] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Options, include_extras=True).items()
    if get_origin(hint) is Annotated
}


def flag(name: str) -> str:
    """The name of an option, made of its field's."""
    return f"--{name.replace('_', '-')}"


def _range(count: NodeCount, *, is_burst: bool) -> NodeCount | None:
    if count.is_range and is_burst:
        raise SettingsError(
            f"--nodes {count.text} goes by the load, and --burst ends when nothing is due: give --nodes a number"
        )
    return count if count.is_range else None


def _numbers(
    asked: NodeCount, number: str | None, total: str | None, environ: Mapping[str, str]
) -> dict[str, int | None]:
    """The first node's number and the number of all nodes. Refuses what would leave shards without a node."""
    here, everywhere = environment.find_node_number(number, environ), environment.find_number_of_nodes(total, environ)
    if (given := here or everywhere) and not asked.is_number:
        raise SettingsError(
            f"--nodes {asked.text}, but {given} numbers the nodes: each number has a fixed part of the shards, so how "
            "many there are can't be left to this machine. Unset NODE_NUMBER and NUMBER_OF_NODES on every machine, and "
            "the nodes share the shards by themselves; or give --nodes a number, the same everywhere"
        )
    nodes = asked.least
    machine = environment.parse_node_number(here) if here else None
    count = environment.parse_number_of_nodes(everywhere) if everywhere else nodes
    if everywhere is None and machine:
        raise SettingsError(f"{here} says that there are other machines: set NUMBER_OF_NODES to all their nodes")
    if machine is None and count != nodes:
        raise SettingsError(
            f"{everywhere}, but --nodes {nodes} run here: set NODE_NUMBER to this machine's number (from 0), "
            f"or NUMBER_OF_NODES to {nodes} if it is the only one"
        )
    first = (machine or 0) * nodes
    if first + nodes > count:
        raise SettingsError(
            f"{here} with --nodes {nodes} runs nodes {first} to {first + nodes - 1}, but {everywhere} allows 0 to "
            f"{count - 1}: NUMBER_OF_NODES counts the nodes of all machines (machines times --nodes)"
        )
    is_elastic = here is None and everywhere is None
    return {"node_number": machine, "first_node": first, "number_of_nodes": count, "is_elastic": is_elastic}


def _check_reload(given: Mapping[str, Any]) -> None:
    if not given.get("reload"):
        return
    if given.get("preload"):
        raise SettingsError("--reload replaces nodes, which would get --preload's old code again: use one of them")
    if importlib.util.find_spec("watchfiles") is None:
        raise SettingsError("--reload needs watchfiles: pip install 'lowkiq[reload]'")


def _web_address(given: Mapping[str, Any], environ: Mapping[str, str]) -> Address | None:
    """The web view's address; None: it isn't wanted. Refuses one that is open to everybody, or can't be served."""
    text = given.get("web")
    if text is None:
        for name in ("web_read_only", "web_no_payloads", "web_no_auth"):
            if given.get(name):
                raise SettingsError(
                    f"{flag(name)} is for the web view: add where it listens, such as --web 127.0.0.1:8080"
                )
        return None
    address = environment.parse_address(text, "--web")
    if address.port == 0:
        raise SettingsError(f"--web {text}: the port would be another after every restart, give one from 1 to 65535")
    no_auth = given.get("web_no_auth", False)
    environment.check_address(
        address, Credentials.find(environ), no_auth=no_auth, given=f"--web {text}", option="--web-no-auth"
    )
    missing = [name for name in environment.NEEDED_BY_THE_VIEW if importlib.util.find_spec(name) is None]
    if missing:
        raise SettingsError(f"--web {text} needs {', '.join(missing)}: pip install 'lowkiq[web]'")
    return address
