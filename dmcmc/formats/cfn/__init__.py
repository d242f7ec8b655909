"""toulbar2's JSON (`.cfn`)."""
