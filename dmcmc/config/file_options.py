"""What may stand beside ``problem.file`` in a configuration, and as an option on the command line."""

FILE_OPTIONS = {
    "format": ("FORMAT", "read the problem file as this format"),
    "agents": ("N", "give the variables to N agents"),
    "split": ("METHOD", "how: tree (default), grow or blocks"),
    "distribution": ("FILE", "which pyDCOP agent hosts what"),
    "evidence": ("FILE", "observations of a UAI or BIF network"),
}
"""By name: what stands for the value in a help text, and the text."""
