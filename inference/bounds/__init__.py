"""Upper bounds W_i(b) >= U_i(b) on the utility that an agent's hidden variables can add, for each row b.

A row is one assignment of the agent's boundary variables (its interface). ``registry`` lists the bound providers;
``contract`` defines the protocols that they implement.
"""
