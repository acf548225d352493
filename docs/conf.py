"""
The documentation site: Sphinx over the same Markdown that a code host shows.

Its source is the whole checkout, so that a link means the same in both, be it to a page, to the chart's README, or to a
unit file, which the site offers as a download. `make docs` builds it, and takes every warning for an error.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from inspect import isclass, isroutine
from pathlib import Path
from typing import Any

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import lowkiq

ROOT = Path(__file__).parent.parent

project = "Lowkiq for Python"
author = "its authors"
version = release = lowkiq.__version__
html_title = f"{project} {version}"

#: Modules for others' frameworks and tools, each of which shows what its `__all__` names.
ROOMS = ("testing", "django", "fastapi", "sqlalchemy", "outbox", "telemetry", "celery")

root_doc = "docs/index"
include_patterns = ["docs/**", "helm/lowkiq/README.md"]
exclude_patterns = [".*", "build", "dist", "benchmarks", "examples", "lowkiq", "pytest_lowkiq", "supervisor", "tests"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Headings have the anchors that code hosts give them.
myst_heading_anchors = 4

default_role = "code"  # docstrings have code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
python_display_short_literal_types = True

# A name of ours that is told nowhere is an error. Others' are not looked up: that would take their sites to build ours.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!lowkiq\b).*"),
    ("py:class", r"lowkiq\.(registration\.W|types\.variables\.[KP])"),  # type variables, which say nothing to look up
    # What is passed on and not looked into.
    (
        "py:class",
        r"lowkiq\.(registration\.Registration|recurring\.Declaration|queue\.(shard\.Shard|unreadable\.Unreadable)|job\.EncodedJob)",
    ),
    ("py:class", r"lowkiq\..*\.Annotated"),
    ("py:class", r"lowkiq\.options\.\w+"),  # keywords, which docs/settings.md explains
    # Inner parts of rooms; what these offer is found by public_name.
    ("py:.*", rf"lowkiq\.({'|'.join(ROOMS)})\..*"),
]

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

#: What not everybody can use of what Sphinx writes: headings without a level, and blocks that only a mouse scrolls.
MENDED = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
}


def front_page(_: Sphinx, name: str, source: list[str]) -> None:
    """Puts README at the head of the start page, so that what it says is said once, and leads links to it there."""
    if name.startswith("docs/"):
        source[0] = source[0].replace("](../README.md", "](index.md")
    if name == root_doc:
        readme = (ROOT / "README.md").read_text("utf-8")
        readme = re.sub(r"(\]\(|\")docs/", r"\1", readme)
        readme = re.sub(r"\]\((?=(helm|examples)/|LICENSE)", "](../", readme)
        # A pattern that no page fits yet would be a warning.
        lines = [
            line for line in source[0].splitlines() if "*" not in line or [*Path(__file__).parent.glob(f"{line}.md")]
        ]
        source[0] = "\n".join([readme, *lines])


def rooms(_: Sphinx, name: str, source: list[str]) -> None:
    """Has the reference tell of the rooms that there are."""
    if name == "docs/reference":
        for room in filter(lambda room: find_spec(f"lowkiq.{room}"), ROOMS):
            directive = f".. automodule:: lowkiq.{room}\n   :members:\n   :imported-members:\n   :undoc-members:\n"
            module = import_module(f"lowkiq.{room}")
            # What has no docstring of its own: the name of a type.
            members = {name: getattr(module, name) for name in module.__all__}
            plain = [name for name, one in members.items() if not (isclass(one) or isroutine(one))]
            directive += "".join(f".. autodata:: lowkiq.{room}.{name}\n   :no-value:\n" for name in plain)
            source[0] += f"\n## lowkiq.{room}\n\n```{{eval-rst}}\n{directive}```\n"


def every_command(_: Sphinx, name: str, source: list[str]) -> None:
    """Has the page on commands show what each says of itself."""
    if name == "docs/cli":
        supervisor = typer.main.get_command(import_module("lowkiq_supervisor.cli").cli)
        lowkiq = import_module("lowkiq.cli.commands").whole()
        for program, command in (("lowkiq-supervisor", supervisor), ("lowkiq", lowkiq)):
            source[0] += "".join(f"\n### {title}\n\n```text\n{text}\n```\n" for title, text in helps(program, command))


def helps(title: str, command: Any) -> Iterator[tuple[str, str]]:
    """The help of a command, and of those below it, each with its name."""
    context = typer.Context(command, info_name=title, max_content_width=100, terminal_width=100)
    yield title, command.get_help(context).rstrip()
    for name, inner in getattr(command, "commands", {}).items():
        yield from helps(f"{title} {name}", inner)


def public_name(app: Sphinx, env: BuildEnvironment, node: Any, text: nodes.Element) -> nodes.Element | None:
    """Leads from where a name is defined to where it is told of: lowkiq.job.Pushed is told of as lowkiq.Pushed."""
    path, __, name = str(node.get("reftarget", "")).rpartition(".")
    room = next((f"lowkiq.{room}" for room in ROOMS if f"{path}.".startswith(f"lowkiq.{room}.")), "lowkiq")
    module = next((at for at in (room, "lowkiq", "lowkiq.errors") if name in public_of(at)), None)
    if node.get("refdomain") != "py" or module is None:
        return None
    target = f"{module}.{name}"
    return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, text)


@functools.cache
def public_of(module: str) -> set[str]:
    """Names that a module offers."""
    found = import_module(module)
    return set(getattr(found, "__all__", vars(found)))


def skip_alias(_: Sphinx, what: str, name: str, found: Any, *__: Any) -> bool | None:
    """A class that another class has an attribute of is told of where it belongs."""
    return True if what == "class" and isinstance(found, type) and found.__qualname__ == name else None


def for_machines(env: BuildEnvironment) -> str:
    """What programs that read documentation ask a site for: each page, and how it begins."""
    lines = [f"# {project}\n"]
    for name in sorted(env.found_docs, key=lambda name: (name != root_doc, name)):
        paragraphs = env.get_doctree(name).findall(nodes.paragraph)
        begins = next((one.astext() for one in paragraphs if isinstance(one.parent, nodes.section)), "")
        told = " ".join(begins.split())
        lines.append(f"- [{env.titles[name].astext()}]({name}.html): {told}")
    return "\n".join(lines) + "\n"


def finish(app: Sphinx, error: Exception | None) -> None:
    """Copies the pictures of <picture>, which Sphinx does not see, and leads from the root to the start page."""
    if error is None and app.builder.format == "html":
        site = Path(app.outdir)
        shutil.copytree(ROOT / "docs/images", site / "docs/images", dirs_exist_ok=True)
        for page in site.rglob("*.html"):
            html = page.read_text("utf-8")
            for mark, better in MENDED.items():
                html = html.replace(mark, better)
            page.write_text(html, "utf-8")
        (site / "llms.txt").write_text(for_machines(app.env), "utf-8")
        (site / "index.html").write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        )


def setup(app: Sphinx) -> None:
    """Connects the functions above."""
    app.connect("source-read", front_page)
    app.connect("source-read", rooms)
    app.connect("source-read", every_command)
    app.connect("autodoc-skip-member", skip_alias)
    app.connect("missing-reference", public_name)
    app.connect("build-finished", finish)
