"""How many cores a process may keep busy, by affinity and the quotas of control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lowkiq_supervisor.parsing import usable_cores


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def cores(directory: Path, membership: str, **files: str) -> int:
    for name, text in files.items():
        path = directory / "mounted" / name.replace("__", "/").replace("-", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (directory / "cgroup").write_text(membership)
    return usable_cores(directory / "cgroup", directory / "mounted")


def test_without_control_groups_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path) == 16
    assert cores(tmp_path, "") == 16


@pytest.mark.parametrize(
    ("quota", "found"),
    [
        ("max 100000", 16), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("9900000 100000", 16),
        ("", 16), ("none of it", 16), ("0 100000", 16), ("100000", 1),
    ],
)  # fmt: skip
def test_a_quota_of_the_own_group_counts_and_a_part_of_a_core_as_one(tmp_path: Path, quota: str, found: int) -> None:
    assert cores(tmp_path, "0::/shop\n", **{"shop__cpu-max": quota}) == found


def test_the_lowest_quota_of_the_groups_around_it_counts(tmp_path: Path) -> None:
    files = {"cpu-max": "max 100000", "a__cpu-max": "300000 100000", "a__b__cpu-max": "800000 100000"}
    assert cores(tmp_path, "0::/a/b\n", **files) == 3


def test_in_a_container_the_path_may_be_the_host_s(tmp_path: Path) -> None:
    assert cores(tmp_path, "0::/../../kubepods/pod7\n", **{"cpu-max": "400000 100000"}) == 4


def test_version_1_has_files_of_its_own(tmp_path: Path) -> None:
    membership = "4:memory:/shop\n3:cpu,cpuacct:/shop\n0::/\n"
    files = {"cpu,cpuacct__shop__cpu-cfs_quota_us": "250000\n", "cpu,cpuacct__shop__cpu-cfs_period_us": "100000\n"}
    assert cores(tmp_path, membership, **files) == 3
    assert cores(tmp_path, membership, **files | {"cpu,cpuacct__shop__cpu-cfs_quota_us": "-1\n"}) == 16
