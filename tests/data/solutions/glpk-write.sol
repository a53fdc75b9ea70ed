c Problem:
c Rows:       12
c Columns:    15
c Non-zeros:  24
c Status:     INTEGER OPTIMAL
c Objective:  cost = 5075680 (MINimum)
c
s mip 12 15 o 5075680
i 1 0
i 2 0
i 3 1
i 4 0
i 5 0
i 6 0
i 7 0
i 8 0
i 9 1
i 10 0
i 11 0
i 12 1
j 1 0
j 2 0
j 3 1
j 4 1
j 5 0
j 6 0
j 7 1
j 8 0
j 9 0
j 10 1
j 11 1
j 12 0
j 13 1
j 14 1
j 15 1
e o f
