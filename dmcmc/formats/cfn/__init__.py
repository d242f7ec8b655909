"""Cost function networks in toulbar2's JSON format (`.cfn`)."""
