"""Find out who besides this user can write to a file or folder.

Compiled kernels are executed, so they are loaded only from files that nobody but this user and root can have written.
The rules are those of OpenSSH for keys (``StrictModes`` in its manual page sshd_config): the file and all folders above
it belong to this user or to root, and nobody else can write to them. A folder with the sticky bit, such as ``/tmp``,
may be above, since only the owner of an entry can replace it there. The group of a user who is its only member does not
count as somebody else.
"""

import os
import stat
from pathlib import Path

_ROOT = 0  # user id of the system administrator, who can replace any file


def folder_problem(folder: Path) -> str | None:
    """Return why another user could replace the files of an existing folder; None if only this user and root can.

    Windows protects the folders of a user by access control lists, so nothing is checked there.

    Parameters
    ----------
    folder : Path
        An absolute path.

    Raises
    ------
    OSError
        If the folder or one above it cannot be inspected.
    """
    return parents_problem(folder) or (_problem(str(folder), os.stat(folder)) if _has_owners() else None)


def parents_problem(folder: Path) -> str | None:
    """Return why another user could replace a folder, or create it; None if only this user and root can.

    Links are followed: the folders above a link and above its target are both inspected.

    Raises
    ------
    OSError
        If a folder above cannot be inspected.
    """
    if not _has_owners():
        return None
    # In a container without a mapped administrator, the folder / has another owner; that one can replace everything.
    administrator = os.stat(folder.anchor).st_uid
    for path in dict.fromkeys((*reversed(folder.parents), *reversed(Path(os.path.realpath(folder)).parents))):
        status = os.stat(path)
        problem = _problem(str(path), status, administrator, sticky_allowed=True)
        if problem is not None:
            return problem
    return None


def file_problem(name: str, status: os.stat_result) -> str | None:
    """Return why another user could have written a file, given its status; None if only this user and root could."""
    return _problem(name, status) if _has_owners() else None


def _has_owners() -> bool:
    """Return whether files have an owner and permissions as in POSIX."""
    return hasattr(os, "geteuid")


def _problem(name: str, status: os.stat_result, administrator: int = _ROOT, sticky_allowed: bool = False) -> str | None:
    """Return why somebody else could write to a file or folder, given its status; None if nobody can."""
    if status.st_uid not in (_ROOT, administrator, os.geteuid()):
        return f"{name} belongs to another user (uid {status.st_uid})"
    if sticky_allowed and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"all users can write to {name}"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
        return f"its group (gid {status.st_gid}) can write to {name}"
    return None


def _is_private_group(group: int, user: int) -> bool:
    """Return whether a group is the group of one user: with the user's name and without other members."""
    import grp
    import pwd

    try:
        members, owner = grp.getgrgid(group), pwd.getpwuid(user)
    except KeyError:
        return False
    return owner.pw_gid == group and members.gr_name == owner.pw_name and set(members.gr_mem) <= {owner.pw_name}
