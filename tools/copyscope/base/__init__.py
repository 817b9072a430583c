"""Helpers that all packages of copyscope share: errors, text, statistics, files and starting programs."""
