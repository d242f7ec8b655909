"""Bayesian networks in XMLBIF 0.3 (`.xmlbif`, `.bifxml`)."""
