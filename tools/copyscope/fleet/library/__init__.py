"""Modules for ansible: ansible-core loads them by path and runs them on the hosts."""
