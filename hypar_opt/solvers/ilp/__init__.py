"""Integer programming: a cost table as a 0-1 program, solved by any backend of PuLP's."""
