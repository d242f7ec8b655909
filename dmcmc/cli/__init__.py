"""The command line: arguments, what each command does, how failures are told, exit codes. Nothing imports it."""
