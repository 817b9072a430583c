"""From a kernel stack to a copy or a stage. Pure."""
