"""Messages of junction trees on an NVIDIA GPU: a launch for all that need nothing of each other."""
