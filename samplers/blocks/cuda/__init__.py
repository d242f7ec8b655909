"""Block moves of many chains on an NVIDIA GPU: all of them redraw the same blocks, each given its own other values."""
