"""Records: all measurements and results of one run, as typed values and as one JSON document."""
