"""The fingerprint of the machine: processors, kernel, limits, tools."""
