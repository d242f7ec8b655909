"""UAI networks (`.uai`) with their evidence."""
