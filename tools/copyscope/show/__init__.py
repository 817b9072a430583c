"""One run on the terminal: a record in, text out. No new numbers."""
