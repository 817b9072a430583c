"""How a command begins and ends: whose tree root runs, with what environment, and its standard streams."""
