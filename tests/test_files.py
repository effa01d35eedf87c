"""Files that are written whole or not at all."""

import os
import stat

import pytest

from fssl_core.files import atomic_write


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_who_may_read_a_file_is_up_to_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        with atomic_write(tmp_path / "file", "w") as file:
            file.write("content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_an_error_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_write(path, "w") as file:
        file.write("ne" + file.write("half"))
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
