"""Plots of a sweep. Functions draw matplotlib figures from the table's rows, and compute no new numbers."""
