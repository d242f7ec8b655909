"""Squares of rows' own, after the one that all rows of an agent share, and with further variables fixed.

:mod:`.cases` says what they are for, :mod:`.ground` lays agents out once, :mod:`.steps` are theirs, :mod:`.batch` makes
them for many cases, :mod:`.certificates` bounds those exactly where they are. :mod:`.agenda` says what comes next for
rows' trees, :mod:`.turn` lowers rows.
"""
