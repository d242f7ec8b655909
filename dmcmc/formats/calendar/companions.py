"""Open the files that a calendar names: exported calendars and polls."""

from pathlib import Path

from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import FileError

_MAX_BYTES = 64 << 20  # of one file


class CompanionFiles:
    """Files that a calendar names, relative to its folder.

    Parameters
    ----------
    folder : Path or None
        The folder of the calendar; None for a calendar from standard input or from memory, which is then the current
        folder unless ``within`` is given.
    within : Path or None
        If given, only files in this folder and below it are opened.
    """

    def __init__(self, folder: Path | None, within: Path | None = None) -> None:
        self._folder, self._within = folder or within or Path(), within

    def read(self, name: str) -> SourceFile:
        """Read a file.

        Raises
        ------
        ValueError
            If the file is outside the allowed folder, cannot be read, or is too large.
        """
        path = self._folder / name
        try:
            if self._within is not None and not path.resolve().is_relative_to(self._within.resolve()):
                raise ValueError(f"{name}: is outside the folder that may be read")
            with path.open("rb") as stream:
                content = stream.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{name}: cannot be read: {error.strerror or error}") from None
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{name}: larger than {_MAX_BYTES >> 20} MiB")
        return SourceFile(name, content, path)

    def text(self, name: str) -> str:
        """Return a file as UTF-8 text; see :meth:`read`."""
        try:
            return self.read(name).text()
        except FileError as error:
            raise ValueError(str(error)) from None
