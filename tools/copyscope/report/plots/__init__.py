"""Plots of a sweep, one file each: rows of the table in, a matplotlib figure out. No new numbers."""
