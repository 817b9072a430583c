"""What a run will do: options, segments, phases, processors, tier. Nothing is started here."""
