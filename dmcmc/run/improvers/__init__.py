"""What time can be spent on: each kind of work prices its offers and carries out what is granted."""
