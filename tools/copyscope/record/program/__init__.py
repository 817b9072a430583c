"""Raw sections of a program that is watched: volume, connections, segments. Pure."""
