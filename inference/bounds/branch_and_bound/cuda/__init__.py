"""Search in rows on a GPU: a block for each node at which a wave branches, bounds equal to the CPU's to the bit."""
