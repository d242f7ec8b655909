"""What a run tells while it works, and how it is ended from outside."""
