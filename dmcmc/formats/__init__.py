"""Readers and writers of problem files.

`registry` lists every format with the pattern that recognises it, its reader and its writer. Each format is a package
with `read.py` and, if the format can be written, `write.py`; code that several formats share is in `common/`.
"""
