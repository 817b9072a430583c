"""The report of a sweep: sections of plain blocks, written as HTML. No new numbers."""
