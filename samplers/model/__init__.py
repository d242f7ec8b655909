"""What chains work on: an agent's factors as columns of whole numbers, states, random bits, temperatures, rounds."""
