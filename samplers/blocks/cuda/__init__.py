"""Block moves of many chains on an NVIDIA GPU: all chains redraw the same blocks, each given its other values."""
