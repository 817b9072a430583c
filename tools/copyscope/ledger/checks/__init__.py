"""The consistency checks: two independent numbers that must agree. Pure."""
