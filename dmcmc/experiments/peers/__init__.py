"""Other solvers to compare with, each in a process of its own; what they answer is evaluated on our factors."""
