"""Constraint programming: a cost table as clauses, solved by OR-Tools' CP-SAT."""
