"""What a run will do: options, segments, arms, processors, tier. Nothing is started here."""
