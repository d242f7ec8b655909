"""Search engines of other packages in child processes: what toulbar2 and CP-SAT share."""
