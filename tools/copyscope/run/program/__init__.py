"""Watching a program that copyscope did not write: who it is, when it runs, where it talks to."""
