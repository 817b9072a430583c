"""What four published reports claim, as a table of rows (table.py), and one evaluator (judge.py). Pure."""
