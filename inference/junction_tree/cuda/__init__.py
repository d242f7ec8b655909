"""Messages of junction trees on an NVIDIA GPU: one launch for all messages that do not depend on each other."""
