"""The names of the packages: every folder with an ``__init__.py``. All else stands in pyproject.toml.

Three of the four code folders install under another name; where the links between them are missing, as in a source
distribution, setuptools finds them only by themselves.
"""

from setuptools import find_packages, setup

ROOT, SUBPACKAGES = "dmcmc", ("inference", "samplers", "mpi")


def packages(where: str = ".") -> list[str]:
    """Return the packages of a source tree by the names that they are imported by, with links or without."""
    own = find_packages(where, include=[ROOT, f"{ROOT}.*"])
    found = find_packages(where, include=[pattern for name in SUBPACKAGES for pattern in (name, f"{name}.*")])
    return sorted({*own, *(f"{ROOT}.{name}" for name in found)})


if __name__ == "__main__":
    setup(packages=packages())
