"""Readers and writers of problem files: one module per format, and `registry`, which lists and recognises them."""
