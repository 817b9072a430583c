"""Plan a run: its options, segments, instruments, CPUs and tier. Nothing is started here."""
