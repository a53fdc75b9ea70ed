Problem:
Rows:       12
Columns:    15 (8 integer, 8 binary)
Non-zeros:  24
Status:     INTEGER OPTIMAL
Objective:  cost = 5075680 (MINimum)

   No.   Row name        Activity     Lower bound   Upper bound
------ ------------    ------------- ------------- -------------
     1 over(conv1,conv2,H1,conv1)
                                   0             0
     2 over(conv1,conv2,H1,conv2)
                                   0             0
     3 over(conv2,fc1,H1,conv2)
                                   1             0
     4 over(conv2,fc1,H1,fc1)
                                   0             0
     5 over(fc1,fc2,H1,fc1)
                                   0             0
     6 over(fc1,fc2,H1,fc2)
                                   0             0
     7 over(conv1,conv2,H2,conv1)
                                   0             0
     8 over(conv1,conv2,H2,conv2)
                                   0             0
     9 over(conv2,fc1,H2,conv2)
                                   1             0
    10 over(conv2,fc1,H2,fc1)
                                   0             0
    11 over(fc1,fc2,H2,fc1)
                                   0             0
    12 over(fc1,fc2,H2,fc2)
                                   1             0

   No. Column name       Activity     Lower bound   Upper bound
------ ------------    ------------- ------------- -------------
     1 x(conv1,H1,model)
                    *              0             0             1
     2 x(conv2,H1,model)
                    *              0             0             1
     3 x(fc1,H1,model)
                    *              1             0             1
     4 x(fc2,H1,model)
                    *              1             0             1
     5 x(conv1,H2,model)
                    *              0             0             1
     6 x(conv2,H2,model)
                    *              0             0             1
     7 x(fc1,H2,model)
                    *              1             0             1
     8 x(fc2,H2,model)
                    *              0             0             1
     9 z(conv1,conv2,H1)
                                   0             0
    10 z(conv2,fc1,H1)
                                   1             0
    11 z(fc1,fc2,H1)
                                   1             0
    12 z(conv1,conv2,H2)
                                   0             0
    13 z(conv2,fc1,H2)
                                   1             0
    14 z(fc1,fc2,H2)
                                   1             0
    15 constant                    1             1             =

Integer feasibility conditions:

KKT.PE: max.abs.err = 0.00e+00 on row 0
        max.rel.err = 0.00e+00 on row 0
        High quality

KKT.PB: max.abs.err = 0.00e+00 on row 0
        max.rel.err = 0.00e+00 on row 0
        High quality

End of output
