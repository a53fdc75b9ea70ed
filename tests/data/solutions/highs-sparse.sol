Model status
Optimal

# Primal solution values
Feasible
Objective 5075680
# Columns -8
x(fc1,H1,model) 1 2
x(fc2,H1,model) 1 3
x(fc1,H2,model) 1 6
z(conv2,fc1,H1) 1 9
z(fc1,fc2,H1) 1 10
z(conv2,fc1,H2) 1 12
z(fc1,fc2,H2) 1 13
constant 1 14
