"""A file is read back exactly as it was written, or not at all."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.storage.checked_file import CachedFileError, read_checked, write_checked

CONTENTS = bytes(range(256))


@pytest.fixture
def path(tmp_path):
    """Return a file that was written with the key ``key``."""
    write_checked(tmp_path / "file", "key", CONTENTS)
    return tmp_path / "file"


def test_contents_are_read_back(path):
    assert read_checked(path, "key") == CONTENTS
    write_checked(path, "key", b"")
    assert read_checked(path, "key") == b""
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_missing_file_has_no_contents(tmp_path):
    assert read_checked(tmp_path / "missing", "key") is None
    assert read_checked(tmp_path / "missing" / "file", "key") is None


@given(st.data())
def test_changed_bytes_are_found(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("changed") / "file"
    write_checked(path, "key", CONTENTS)
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    changed = whole[:start] + data.draw(st.binary(max_size=9)) + whole[stop:]
    path.write_bytes(changed)
    if changed == whole:
        assert read_checked(path, "key") == CONTENTS
    else:
        with pytest.raises(CachedFileError, match="is damaged"):
            read_checked(path, "key")


def test_a_file_of_another_key_is_damaged(path):
    with pytest.raises(CachedFileError, match="is damaged"):
        read_checked(path, "other key")


def test_others_can_read_a_file_but_not_write_it(path):
    before = os.umask(0)
    try:
        write_checked(path, "key", CONTENTS)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_that_others_can_write_is_not_read(path):
    if not hasattr(os, "geteuid"):
        pytest.skip("no POSIX permissions")
    path.chmod(0o666)
    with pytest.raises(CachedFileError, match="all users can write to"):
        read_checked(path, "key")


def test_concurrent_writers_leave_a_complete_file(path):
    pieces = [bytes([number]) * 100_000 for number in range(4)]
    writers = [
        threading.Thread(target=lambda piece=piece: [write_checked(path, "key", piece) for _ in range(20)])
        for piece in pieces
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert read_checked(path, "key") in [CONTENTS, *pieces]
    for writer in writers:
        writer.join()
    assert read_checked(path, "key") in pieces
