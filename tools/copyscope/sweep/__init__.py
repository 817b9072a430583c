"""Experiments: what is varied, every run once, kept and resumed; a sweep's directory."""
