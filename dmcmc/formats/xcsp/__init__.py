"""XCSP 2.1 in the dialect of FRODO."""
