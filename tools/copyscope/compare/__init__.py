"""What can be compared between runs, and with which certainty. Pure."""
