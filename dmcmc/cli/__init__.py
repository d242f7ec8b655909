"""The command line: arguments, commands, progress, signals, errors and exit codes. No other package imports it."""
