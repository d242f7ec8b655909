"""Expressions in problem files, parsed and evaluated without `eval`; the pyDCOP and XCSP readers use them."""
