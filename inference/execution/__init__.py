"""How an elimination is carried out: on which device (`backend`), and exactly or relaxed (`relaxation`)."""
