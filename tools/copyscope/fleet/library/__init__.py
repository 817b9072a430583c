"""What ansible-core loads by its path and sends to a host: our module."""
