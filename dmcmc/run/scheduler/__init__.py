"""What a run does next: everything that can use time is an offer, and rank 0 divides each slice of time among them."""
