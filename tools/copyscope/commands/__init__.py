"""The commands: arguments and exit status, no logic."""
