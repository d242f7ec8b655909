"""Problem families: meeting scheduling, random DCOPs, random networks. The same parameters give the same problem."""
