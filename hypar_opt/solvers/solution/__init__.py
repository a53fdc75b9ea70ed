"""Solutions of other programs: their solution files, checked like a solver's answer."""
