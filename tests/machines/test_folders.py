"""A cache folder that can be written, whatever the home is."""

from kernels.machines import folders


def test_a_cache_is_where_the_platform_keeps_it_or_where_the_variable_says(monkeypatch, tmp_path):
    monkeypatch.delenv(folders.FOLDER, raising=False)
    assert folders.cache("mine").parts[-2:] == (folders.NAME, "mine")
    monkeypatch.setenv(folders.FOLDER, str(tmp_path / "there"))
    assert folders.cache("mine") == tmp_path / "there" / "mine" and folders.cache("mine").is_dir()


def test_a_home_that_cannot_be_written_still_has_a_cache(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(folders.FOLDER, str(blocked))
    (folders.cache("mine") / "kept").write_text("1")
    assert (folders.cache("mine") / "kept").read_text() == "1"
