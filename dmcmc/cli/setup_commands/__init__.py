"""What newcomers begin with: examples, and words that the shell completes."""
