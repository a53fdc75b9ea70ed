Optimal - objective value 5075680.00000000
      0 x[conv1,H1,model]                        0                 5890240
      1 x[conv2,H1,model]                        0                 1238400
      2 x[fc1,H1,model]                          1                -4710400
      3 x[fc2,H1,model]                          1                  -59520
      4 x[conv1,H2,model]                        0                11792480
      5 x[conv2,H2,model]                        0                 3076800
      6 x[fc1,H2,model]                          1                 -486400
      7 x[fc2,H2,model]                          0                     960
      8 z[conv1,conv2,H1]                        0                 1474560
      9 z[conv2,fc1,H1]                          1                       0
     10 z[fc1,fc2,H1]                            1                       0
     11 z[conv1,conv2,H2]                        0                 1474560
     12 z[conv2,fc1,H2]                          1                       0
     13 z[fc1,fc2,H2]                            1                       0
     14 constant                                 1                10332000
