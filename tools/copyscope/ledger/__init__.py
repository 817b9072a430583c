"""Arithmetic on one record: copies, stages, consistency checks and the verdict. Pure."""
