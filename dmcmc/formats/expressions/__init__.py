"""Expressions of problem files, parsed and evaluated without `eval`; pyDCOP and XCSP use them."""
