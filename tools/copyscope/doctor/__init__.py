"""Check the machine: which instruments work, and which send methods avoid the copy."""
