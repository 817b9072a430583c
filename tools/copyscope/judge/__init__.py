"""Comparison of runs: estimates, differences, crossovers and advice. Pure."""
