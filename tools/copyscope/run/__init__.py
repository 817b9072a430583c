"""One run in order: build, start, pause, attach, measure, collect; what was measured is always kept."""
