"""Search in rows on a GPU: a block for each node at which a wave branches, the same bounds, to the bit, as on the CPU."""
