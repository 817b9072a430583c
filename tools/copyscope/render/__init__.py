"""A record in, text out; a study in, plots and pages out. No new numbers."""
