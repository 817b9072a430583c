"""Text for the terminal, made from records. This package formats numbers and computes none."""
