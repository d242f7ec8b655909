"""Parts of the builder of problems that know names and labels, but no tables."""
