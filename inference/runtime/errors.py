"""Errors and warnings that users see: one clear line each, never a traceback."""


class DmcmcError(Exception):
    """An error that the user can act on.

    ``str(error)`` is one line that names the problem, its place and a remedy.

    Attributes
    ----------
    exit_code : int
        Exit status of the command line: 2 for invalid input or an unsupported feature, 1 for a failed run.
    order : int
        Priority if several ranks fail at once: the error with the smallest number is reported.
    """

    exit_code = 2
    order = 0


class ProblemError(DmcmcError):
    """An invalid problem; the message names the factor and the variable."""


class FileError(DmcmcError):
    """A file that cannot be read or written; the message names the file and the position in it.

    The middle of a very long message is left out, since a damaged file may have a word of any length.

    Attributes
    ----------
    longest : int
        Characters of the longest message.
    """

    longest = 800

    def __init__(self, message: str = "") -> None:
        half = self.longest // 2 - len(" ... ")
        super().__init__(message if len(message) <= self.longest else f"{message[:half]} ... {message[-half:]}")


class ConfigError(DmcmcError):
    """An invalid configuration; the message names the file, the line and the key."""


class Unavailable(DmcmcError):
    """A feature that this version does not have; the message says what to use instead."""


class ResourceError(DmcmcError):
    """A plan that exceeds the limit on memory or work; the message names the table, its size and a remedy."""


class OutOfTime(ResourceError):
    """Work that was abandoned because the time budget ended or the user cancelled the run."""


class OutOfMemory(ResourceError):
    """Work that does not fit into the remaining memory budget of the run."""


class GpuFault(DmcmcError):
    """The GPU has failed, and what it held is lost; the run goes on without it."""

    exit_code = 1


class CheckpointWarning(UserWarning):
    """A file of a checkpoint is ignored; the message gives the reason."""


class FileWarning(UserWarning):
    """A part of a file is not read, or is read by a guess; the message names it."""


class DivisionWarning(UserWarning):
    """The division of the problem into this number of agents makes it much larger."""
