"""pyDCOP's YAML."""
