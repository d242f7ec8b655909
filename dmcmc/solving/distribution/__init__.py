"""Give each rank its part of a problem: rank 0 scatters the data of the agents of each rank."""
