"""The size at which one strategy overtakes another, and what that means for a watched program. Pure."""
