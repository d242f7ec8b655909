"""Factors for the global cost functions of `.wcsp` and `.cfn` files."""
