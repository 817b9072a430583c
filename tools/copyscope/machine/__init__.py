"""Facts about machines (processors, settings, tool versions), network paths, and hosts reached over ssh."""
