"""What runs say beside each other: estimates, differences, crossovers, and what they advise. Pure."""
