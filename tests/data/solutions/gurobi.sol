# Solution for model hypar_opt
# Objective value = 5075680
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
