"""What this machine can measure, and what it cannot."""
