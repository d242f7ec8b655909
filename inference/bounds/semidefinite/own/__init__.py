"""Squares of rows' own, after the one that all rows of an agent share, and with one more variable fixed.

:mod:`.cases` says what they are for, :mod:`.ground` lays agents out once, :mod:`.batch` makes steps for many of them,
:mod:`.certificates` bounds them exactly where they are, :mod:`.turn` says which come next and lowers rows.
"""
