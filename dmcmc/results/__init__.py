"""Results: the assignment with its objective and bound, measurements, provenance, and their JSON form."""
