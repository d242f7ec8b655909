"""The errors a user may see: one clear line each, never a traceback."""


class DmcmcError(Exception):
    """Something the user can act on. ``str(error)`` is one line: what, where, and what would be right.

    Attributes
    ----------
    exit_code : int
        What the command line exits with: 2 for bad input or a feature that this version lacks, 1 for a failed run.
    order : int
        Of several that strike different ranks at once, the one with the least is told.
    """

    exit_code = 2
    order = 0


class ProblemError(DmcmcError):
    """A problem that is not well formed; names the factor and the variable."""


class FileError(DmcmcError):
    """A file that cannot be read or written; names the file and the place in it."""


class ConfigError(DmcmcError):
    """A configuration that is not valid; names the file, the line and the key."""


class Unavailable(DmcmcError):
    """Something this version does not have; says what to use instead."""


class ResourceError(DmcmcError):
    """A plan that does not fit the memory or the work allowed; names the table, its size and what would help."""


class OutOfTime(ResourceError):
    """Work that was given up because the time budget ended, or because the user asked for the end."""


class OutOfMemory(ResourceError):
    """Work for which what a run holds already leaves no room in its budget."""


class CheckpointWarning(UserWarning):
    """Says that a file of a checkpoint is left out, and why."""


class DivisionWarning(UserWarning):
    """Says that giving a problem's variables to so many agents makes it much larger."""
