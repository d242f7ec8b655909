"""Solve a problem again after tables have changed: only agents between a change and the root work and send messages."""
