"""Calendar files (YAML with the key ``calendar``): people, meetings and busy times, and the problem made from them."""
