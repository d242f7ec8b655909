"""Solve a changed problem again: only agents between a change and the root work and send messages."""
