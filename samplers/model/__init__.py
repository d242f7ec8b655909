"""What Markov chains work on: score columns of factors, states, random bits, temperatures and rounds."""
