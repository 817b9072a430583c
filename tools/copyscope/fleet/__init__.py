"""One command on many hosts: who they are, what each answered, what came of it, and who differs."""
