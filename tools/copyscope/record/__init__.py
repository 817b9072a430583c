"""The waist: what was measured, as one JSON document; everything above it reads records only."""
