"""Options for reading a problem file: keys next to ``problem.file`` in a configuration, and command-line options."""

FILE_OPTIONS = {
    "format": ("FORMAT", "format of the problem file (default: recognised from its content)"),
    "agents": ("N", "assign the variables to N agents"),
    "split": ("METHOD", "how to assign them with --agents: tree (default), grow or blocks"),
    "distribution": ("FILE", "file with the variables that each pyDCOP agent hosts"),
    "evidence": ("FILE", "file with the observations of a belief network; FILE:2 is its second sample"),
}
"""By name: the placeholder of the value in a help text, and the help text."""
