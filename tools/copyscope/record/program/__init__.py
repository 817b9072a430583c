"""Raw sections of a program that is watched: volume, pace, connections, segments. Pure."""
