"""A problem made smaller before a run where that pays, and the run's answer put back into what was asked."""
