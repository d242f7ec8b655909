"""Calendar problems (YAML with the key ``calendar``): people, meetings, busy times and preferences."""
