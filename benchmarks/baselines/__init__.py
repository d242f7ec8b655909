"""Local searches from the literature as baselines for ``dmcmc.solve``: multistart coordinate ascent, DSA and MGM2.

They share no code with the solver, except for the problem and the kernels of ``dmcmc.algorithms``. ``search_kernels``
has the searches, ``search`` runs one of them on all cores for some seconds.
"""
