"""Classify kernel functions as copies or stages of work, and user functions as copies or ciphers. Pure."""
