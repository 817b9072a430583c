"""Metrics of a program for as long as it lives: what they are, and who may read them."""
