"""One agent's tables in the making: sampled from below, bounded from above, without the rows that cannot matter."""
