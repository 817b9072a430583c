"""Plots of a sweep, one file each: rows of the sheet in, a matplotlib figure out. No new numbers."""
