"""Problem families: meeting scheduling, random DCOPs, random networks. Equal parameters give equal problems."""
