"""All that a report says of a sweep: tables, facets, answers. Pure."""
