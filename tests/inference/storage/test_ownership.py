"""Files that somebody else could have written are recognised by owner and permissions."""

import os
import stat

import pytest

from dmcmc.inference.storage.checked_file import file_problem, folder_problem, parents_problem

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no POSIX permissions")
OWN, OTHER = (os.geteuid() if hasattr(os, "geteuid") else 0), 54321


def status(mode, user=OWN, group=OTHER):
    """Return the status of a file with the given permissions, owner and group."""
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, user, group, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "user", "problem"),
    [
        (0o644, OWN, None),
        (0o644, 0, None),
        (0o600, OTHER, f"x belongs to another user (uid {OTHER})"),
        (0o666, OWN, "all users can write to x"),
        (0o664, OWN, f"its group (gid {OTHER}) can write to x"),
        (0o1666, OWN, "all users can write to x"),
    ],
)
def test_a_file_is_trusted_if_only_this_user_and_root_can_write_it(mode, user, problem):
    assert file_problem("x", status(mode, user)) == problem


@pytest.mark.parametrize(
    ("members", "group_name", "private"),
    [([], "me", True), (["me"], "me", True), (["you"], "me", False), ([], "we", False)],
)
def test_the_group_of_one_user_is_not_somebody_else(monkeypatch, members, group_name, private):
    import grp
    import pwd

    monkeypatch.setattr(grp, "getgrgid", lambda group: grp.struct_group((group_name, "x", group, members)))
    monkeypatch.setattr(pwd, "getpwuid", lambda user: pwd.struct_passwd(("me", "x", user, OTHER, "", "/", "")))
    assert (file_problem("x", status(0o664)) is None) == private


def test_a_folder_is_trusted_if_those_above_it_are(tmp_path):
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    assert folder_problem(folder) is None
    folder.chmod(0o777)
    assert folder_problem(folder) == f"all users can write to {folder}"
    assert parents_problem(folder) is None
    folder.chmod(0o755)
    (tmp_path / "above").chmod(0o777)
    assert folder_problem(folder) == f"all users can write to {tmp_path / 'above'}"
    (tmp_path / "above").chmod(0o1777)  # only the owner of an entry can replace it
    assert folder_problem(folder) is None
    folder.chmod(0o1777)
    assert folder_problem(folder) == f"all users can write to {folder}"


def test_the_folders_above_the_target_of_a_link_count(tmp_path):
    (tmp_path / "open" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "folder")
    assert folder_problem(tmp_path / "link") is None
    (tmp_path / "open").chmod(0o777)
    assert folder_problem(tmp_path / "link") == f"all users can write to {tmp_path / 'open'}"


def test_a_folder_of_another_user_is_not_trusted(tmp_path):
    if OWN != 0:
        pytest.skip("only root can give folders away")
    (tmp_path / "home" / "cache").mkdir(parents=True)
    os.chown(tmp_path / "home", OTHER, OTHER)
    assert folder_problem(tmp_path / "home" / "cache") == f"{tmp_path / 'home'} belongs to another user (uid {OTHER})"


def test_nothing_is_checked_on_systems_without_owners(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "geteuid")
    tmp_path.chmod(0o777)
    assert folder_problem(tmp_path) is None and file_problem("x", status(0o666)) is None
