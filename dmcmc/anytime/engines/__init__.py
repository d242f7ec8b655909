"""Search engines that work on the whole problem in the background of a run."""
