"""Code that several formats share: tokens, numbers, XML, belief networks, sparse factors, observations."""
