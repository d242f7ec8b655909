"""What people look at: summaries, explanations, drawings of graphs. Takes results and plans, decides nothing."""
