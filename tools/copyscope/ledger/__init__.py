"""From a raw record to what follows from it: rows, stages, sides, checks, verdict. Pure."""
