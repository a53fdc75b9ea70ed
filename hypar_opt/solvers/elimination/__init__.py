"""Variable elimination: the exact optimum of a cost table on any graph.

A layer is eliminated by a message to its neighbours: for each of their choices, the least cost
of what has been eliminated so far. On a chain, from one end to the other, this is Viterbi.

Source: Bertele and Brioschi, "Nonserial dynamic programming", 1972; Dechter, "Bucket
elimination", Artificial Intelligence 113, 1999.
"""
