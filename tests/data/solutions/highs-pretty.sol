Columns
    Index Status        Lower        Upper       Primal         Dual  Type        Name
        0                   0            1            0               Integer     x(conv1,H1,model)
        1                   0            1            0               Integer     x(conv2,H1,model)
        2                   0            1            1               Integer     x(fc1,H1,model)
        3                   0            1            1               Integer     x(fc2,H1,model)
        4                   0            1            0               Integer     x(conv1,H2,model)
        5                   0            1            0               Integer     x(conv2,H2,model)
        6                   0            1            1               Integer     x(fc1,H2,model)
        7                   0            1            0               Integer     x(fc2,H2,model)
        8                   0          inf            0               Continuous  z(conv1,conv2,H1)
        9                   0          inf            1               Continuous  z(conv2,fc1,H1)
       10                   0          inf            1               Continuous  z(fc1,fc2,H1)
       11                   0          inf            0               Continuous  z(conv1,conv2,H2)
       12                   0          inf            1               Continuous  z(conv2,fc1,H2)
       13                   0          inf            1               Continuous  z(fc1,fc2,H2)
       14                   1            1            1               Continuous  constant
Rows
    Index Status        Lower        Upper       Primal         Dual  Name
        0                   0          inf            0               over(conv1,conv2,H1,conv1)
        1                   0          inf            0               over(conv1,conv2,H1,conv2)
        2                   0          inf            1               over(conv2,fc1,H1,conv2)
        3                   0          inf            0               over(conv2,fc1,H1,fc1)
        4                   0          inf            0               over(fc1,fc2,H1,fc1)
        5                   0          inf            0               over(fc1,fc2,H1,fc2)
        6                   0          inf            0               over(conv1,conv2,H2,conv1)
        7                   0          inf            0               over(conv1,conv2,H2,conv2)
        8                   0          inf            1               over(conv2,fc1,H2,conv2)
        9                   0          inf            0               over(conv2,fc1,H2,fc1)
       10                   0          inf            0               over(fc1,fc2,H2,fc1)
       11                   0          inf            1               over(fc1,fc2,H2,fc2)

Model status: Optimal

Objective value: 5075680
