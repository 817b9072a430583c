"""What ansible-core loads by its path, and what says to us how each host fares."""
