"""UAI networks (`.uai`)."""
