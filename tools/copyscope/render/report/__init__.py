"""The report of a sweep: sections of plain blocks, written as HTML and as Markdown. No new numbers."""
