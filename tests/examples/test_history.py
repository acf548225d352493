"""Histories are read as they are: odd paths, merges, deletions, links, and whatever a user's git is set to."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.history import MAX_NAME_BYTES, Change, GitHistory, HistoryError, add_up, name_of, read_changes, read_tree


@given(st.binary(min_size=1, max_size=MAX_NAME_BYTES // 3))
def test_name_turns_back_into_its_path(path: bytes) -> None:
    assert unquote_to_bytes(name_of(path)) == path


@given(st.binary(min_size=1, max_size=3 * MAX_NAME_BYTES))
def test_name_is_an_id_that_lowkiq_takes(path: bytes) -> None:
    name = name_of(path)
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert not any(character < " " for character in name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"lib/sidekiq.rb", "lib/sidekiq.rb"), ("ä ö/ü.txt".encode(), "ä ö/ü.txt"), (b"latin-\xe4", "latin-%E4"),
        (b"tab\tand\nline", "tab%09and%0Aline"), (b"100%", "100%25"),
    ],
)  # fmt: skip
def test_name_stays_readable(path: bytes, name: str) -> None:
    assert name_of(path) == name


def test_long_paths_have_names_of_their_own() -> None:
    long = name_of(b"d/" * 400)
    assert name_of(b"d/" * 400 + b"a") != name_of(b"d/" * 400 + b"b"), "they begin alike"
    assert name_of(long.encode()) != long, "no short path has the name of a long one"


def test_reads_recorded_changes(tmp_path: Path) -> None:
    events = [{"seq": 1, "path": "a", "blob": "1f", "time": 0}, {"seq": 2, "path": "a", "blob": None, "time": 1}]
    file = tmp_path / "events.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, events)).encode()))
    assert read_changes(file) == [Change(1, "a", "1f"), Change(2, "a", None)]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "line 1: expected"),
        ('{"seq": 1, "path": "a"}', "line 1: expected"),
        ('{"seq": "1", "path": "a", "blob": null}', "seq must be a whole number from 0 to .*, and is '1'"),
        ('{"seq": -1, "path": "a", "blob": null}', "seq must be"),
        ('{"seq": 1, "path": "", "blob": null}', "path must be a non-empty string"),
        ('{"seq": 1, "path": "\\ud800", "blob": null}', "path is no text"),
        ('{"seq": 1, "path": "a", "blob": ""}', "blob must be a non-empty string"),
    ],
)
def test_says_what_is_wrong_with_a_recorded_change(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(line)
    with pytest.raises(HistoryError, match=complaint):
        read_changes(file)


@pytest.mark.parametrize(
    "content", [None, b"not gzip", gzip.compress(b"{}" * 100)[:-20]], ids=["missing", "not gzip", "cut"]
)
def test_says_which_file_it_cannot_read(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "events.jsonl.gz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(HistoryError, match=r"events\.jsonl\.gz"):
        read_changes(file)


def test_reads_a_recorded_tree_and_says_which_line_of_one_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "tree.tsv"
    file.write_bytes(b"a b\t1f\nodd\tpath\r\xff\t2f\n")
    assert read_tree(file) == {"a b": "1f", "odd%09path%0D%FF": "2f"}
    file.write_bytes(b"a\t1f\nb\n")
    with pytest.raises(HistoryError, match=r"tree\.tsv, line 2: expected a path, a tab and a blob"):
        read_tree(file)


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str | bytes) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        return subprocess.run(
            ["git", *arguments], cwd=self.path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    def write(self, name: str | bytes, content: str) -> None:
        path = os.path.join(os.fsencode(self.path), os.fsencode(name))  # noqa: PTH118 (pathlib has no paths in bytes)
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "w") as file:  # noqa: PTH123
            file.write(content)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "change")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def write_a_hard_history(repository: Repository) -> None:
    """Edits, moves, deletions, links, modes, an empty commit, a file that becomes a directory, and two merges."""
    repository.write("edited", "1")
    repository.write("moved", "m" * 100)
    repository.write("becomes", "a file")
    repository.commit()
    repository.commit()
    repository.git("checkout", "--quiet", "-b", "side")
    repository.write("of the side", "s")
    repository.write("edited", "side")
    repository.commit()
    repository.git("checkout", "--quiet", "main")
    repository.git("mv", "moved", "elsewhere")
    (repository.path / "becomes").unlink()
    repository.write("becomes/a/directory", "d")
    (repository.path / "link").symlink_to("edited")
    repository.commit()
    repository.git("merge", "--quiet", "--no-edit", "side")
    repository.git("checkout", "--quiet", "-b", "ours", "HEAD~1")
    repository.write("edited", "conflict")
    (repository.path / "link").unlink()
    repository.commit()
    repository.git("merge", "--quiet", "--no-edit", "--strategy=ours", "main")
    (repository.path / "elsewhere").chmod(0o755)
    repository.commit()


def test_changes_of_a_hard_history_add_up_to_its_tree(repository: Repository) -> None:
    write_a_hard_history(repository)
    history = GitHistory.of(repository.path)
    changes = history.changes()
    assert add_up(changes) == history.tree()
    assert [change.seq for change in changes] == list(range(1, len(changes) + 1))
    assert Change(0, "moved", None) in [change._replace(seq=0) for change in changes]


@pytest.mark.parametrize(
    "setting",
    ["log.showRoot=false", "log.diffMerges=combined", "diff.renames=copies", "diff.noprefix=true", "core.abbrev=7",
     "core.quotePath=true", "color.ui=always", "log.follow=true"],
)  # fmt: skip
def test_a_users_settings_change_nothing(repository: Repository, setting: str) -> None:
    write_a_hard_history(repository)
    before = GitHistory.of(repository.path).changes()
    repository.git("config", *setting.split("="))
    assert GitHistory.of(repository.path).changes() == before


def test_a_submodule_is_an_entry(repository: Repository) -> None:
    repository.write("file", "1")
    repository.commit()
    commit = repository.git("rev-parse", "HEAD").strip()
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")
    repository.git("commit", "--quiet", "-m", "submodule")
    repository.git("config", "diff.ignoreSubmodules", "all")
    history = GitHistory.of(repository.path)
    assert history.tree()["vendored"] == commit
    assert add_up(history.changes()) == history.tree()


@pytest.mark.parametrize(
    "path", [b"latin-\xe4", b"tab\tline\n", b'quote"', b":100644 looks like git", b"d/" * 300 + b"x"]
)
def test_reads_odd_paths(repository: Repository, path: bytes) -> None:
    try:
        repository.write(path, "1")
    except OSError:
        pytest.skip("this file system refuses the name")
    repository.commit()
    history = GitHistory.of(repository.path)
    assert list(history.tree()) == [name_of(path)]
    assert add_up(history.changes()) == history.tree()


def test_reads_the_whole_tree_from_a_directory_inside(repository: Repository) -> None:
    repository.write("top", "1")
    repository.write("inside/file", "2")
    repository.commit()
    repository.git("config", "diff.relative", "true")
    history = GitHistory.of(repository.path / "inside")
    assert set(history.tree()) == {"top", "inside/file"}
    assert add_up(history.changes()) == history.tree()


def test_a_shallow_clone_adds_up_too(repository: Repository, tmp_path: Path) -> None:
    write_a_hard_history(repository)
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.path}", str(tmp_path / "clone"))
    history = GitHistory.of(tmp_path / "clone")
    assert history.tree() == GitHistory.of(repository.path).tree()
    assert add_up(history.changes()) == history.tree()


def test_git_dir_of_a_hook_is_ignored(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("file", "1")
    repository.commit()
    monkeypatch.setenv("GIT_DIR", str(Repository(tmp_path / "other").path / ".git"))
    assert set(GitHistory.of(repository.path).tree()) == {"file"}


@pytest.mark.parametrize(
    ("place", "path", "complaint"),
    [
        ("repository", os.environ["PATH"], "has no commits yet"),
        (".", os.environ["PATH"], "not a git repository"),
        ("repository", "", "git is not installed"),
    ],
)
def test_says_why_there_is_no_history(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, place: str, path: str, complaint: str
) -> None:
    monkeypatch.setenv("PATH", path)
    with pytest.raises(HistoryError, match=complaint):
        GitHistory.of(repository.path.parent / place)
