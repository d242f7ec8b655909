"""What each command of the command line does, after its arguments are parsed."""
