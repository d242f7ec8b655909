"""Problem files. `registry` knows every format, how its first bytes look, its reader and its writer.

A format is a folder with `read.py` and, where it can be written, `write.py`; what they share is in `common/`.
"""
