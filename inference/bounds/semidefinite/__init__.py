"""Semidefinite bounds of rows: a square of a linear function of the assignment is added, which lowers no utility.

:mod:`.network` has what they work on, :mod:`.descent` makes the square, in single precision, from :mod:`.start` on,
:mod:`.certificate` rounds it to whole numbers and bounds rows exactly, :mod:`.ascent` shifts utilities in rows that
have it, :mod:`.lift` does all that for the rows of a dual ascent.
"""
