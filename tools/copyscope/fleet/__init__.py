"""One command on many hosts by ansible: what each answered, what came of it, who differs, what is kept."""
