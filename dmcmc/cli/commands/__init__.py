"""Commands of the command line, each a function that takes the parsed arguments."""
