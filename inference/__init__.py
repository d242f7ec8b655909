"""The graphical model, elimination orders, pseudo-trees, bucket elimination and DPOP's steps. Knows nothing of MPI."""

from dmcmc.inference.runtime.cache import use_kernel_cache

use_kernel_cache()
