"""What is kept on disk is made anew where it is missing, damaged, or of something else."""

import multiprocessing
import os

import pytest

from kernels.machines import cache
from kernels.machines.cache import Cache


@pytest.fixture
def place(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER, str(tmp_path))
    return tmp_path


def test_a_cache_is_where_the_platform_keeps_it_or_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.delenv(cache.FOLDER, raising=False)
    assert cache.folder("mine").parts[-2:] == (cache.NAME, "mine")
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "other"))
    assert cache.folder("mine") == tmp_path / "other" / "mine" and cache.folder("mine").is_dir()
    # Where a home cannot be written, there still is one.
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(cache.FOLDER, str(blocked))
    Cache("mine", 100).put("a", 1)
    assert Cache("mine", 100).get("a") == 1
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(os, "replace", lambda *names: os.write(full, b"a"))
    Cache("mine", 100).put("b", 2)  # nothing is kept, and nothing left
    assert [path.name for path in cache.folder("mine").iterdir()] == ["a"]


def test_what_was_not_used_for_longest_goes_first_and_looks_are_few(place, monkeypatch):
    looks, look = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looks.append(path) or look(path))
    kept = Cache("mine", 100_000)
    for second in range(95):
        kept.put(f"{second:02}", os.urandom(900))
        os.utime(place / "mine" / f"{second:02}", (second, second))
    assert len(looks) < 50 and kept.get("00")  # used last now
    kept.put("last", os.urandom(20_000))
    left = {path.name: path.stat().st_size for path in look(place / "mine")}
    assert set(left) == {"00", "last", *(f"{second:02}" for second in range(97 - len(left), 95))}
    assert 80_000 < sum(left.values()) <= 90_000


@pytest.mark.parametrize("damage", [lambda d: d[:-1] + b"?", lambda d: d[:40], lambda d: b""])
def test_a_damaged_file_is_told_and_made_anew(place, damage):
    kept = Cache("mine", 1 << 20)
    kept.put("a", "right")
    path = place / "mine" / "a"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match="mine/a is made anew"):
        assert kept.get("a") is None
    assert not path.exists() and kept.get("a") is None
    kept.put("a", "again")
    assert kept.get("a") == "again" and [p.name for p in (place / "mine").iterdir()] == ["a"]


def test_an_answer_under_another_name_is_not_believed(place):
    kept = Cache("mine", 1 << 20)
    kept.put("right", "passed")
    (place / "mine" / "right").rename(place / "mine" / "wrong")
    with pytest.warns(UserWarning, match="mine/wrong is made anew"):
        assert kept.get("wrong") is None


def _write(number):
    for i in range(50):
        Cache("mine", 1 << 14).put(f"{i % 7}", [i % 7] * 500)
        assert Cache("mine", 1 << 14).get(f"{i % 7}") in (None, [i % 7] * 500)


def test_several_processes_write_at_a_time(place):
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        workers.map(_write, range(2))
    assert not [path for path in (place / "mine").iterdir() if path.suffix]
