"""The graphical model, elimination orders, pseudo-trees, bucket elimination and DPOP's steps. Knows nothing of MPI."""
