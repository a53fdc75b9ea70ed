Model status
Optimal

# Primal solution values
Feasible
Objective 5075680
# Columns 15
x(conv1,H1,model) 0
x(conv2,H1,model) 0
x(fc1,H1,model) 1
x(fc2,H1,model) 1
x(conv1,H2,model) 0
x(conv2,H2,model) 0
x(fc1,H2,model) 1
x(fc2,H2,model) 0
z(conv1,conv2,H1) 0
z(conv2,fc1,H1) 1
z(fc1,fc2,H1) 1
z(conv1,conv2,H2) 0
z(conv2,fc1,H2) 1
z(fc1,fc2,H2) 1
constant 1
# Rows 12
over(conv1,conv2,H1,conv1) 0
over(conv1,conv2,H1,conv2) 0
over(conv2,fc1,H1,conv2) 1
over(conv2,fc1,H1,fc1) 0
over(fc1,fc2,H1,fc1) 0
over(fc1,fc2,H1,fc2) 0
over(conv1,conv2,H2,conv1) 0
over(conv1,conv2,H2,conv2) 0
over(conv2,fc1,H2,conv2) 1
over(conv2,fc1,H2,fc1) 0
over(fc1,fc2,H2,fc1) 0
over(fc1,fc2,H2,fc2) 1

# Dual solution values
None

# Basis
HiGHS_basis_file v2
None
