"""Problems in pyDCOP's YAML format."""
