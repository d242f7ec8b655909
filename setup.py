"""The names of the packages: every folder with an ``__init__.py``. All else stands in pyproject.toml.

Three of the four code folders install under another name; where the links between them are missing, as in a source
distribution, setuptools finds them only by themselves.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

ROOT, SUBPACKAGES = "dmcmc", ("inference", "samplers", "mpi")


def packages(where: str = ".") -> list[str]:
    """Return the packages of a source tree by the names that they are imported by, with links or without."""
    own = find_packages(where, include=[ROOT, f"{ROOT}.*"])
    found = find_packages(where, include=[pattern for name in SUBPACKAGES for pattern in (name, f"{name}.*")])
    return sorted({*own, *(f"{ROOT}.{name}" for name in found)})


class EditableInstall(editable_wheel):
    """An editable install that adds the folder of the checkout to the import path.

    By default setuptools installs an import hook for this layout. Type checkers such as mypy do not run import hooks,
    and would not find the package. Through the links the checkout has the layout of an installed package. Without the
    links, the import hook is used.
    """

    def finalize_options(self) -> None:
        """Take the packages from where the links show them."""
        super().finalize_options()
        if all(Path(ROOT, name).is_dir() for name in SUBPACKAGES):
            self.package_dir = self.distribution.package_dir = {"": "."}


if __name__ == "__main__":
    setup(packages=packages(), cmdclass={"editable_wheel": EditableInstall})
