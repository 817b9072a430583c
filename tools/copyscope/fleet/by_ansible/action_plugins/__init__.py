"""What ansible-core loads by its path, and what runs here for each host."""
