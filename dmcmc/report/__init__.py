"""Output for people: summaries, explanations, drawings, web pages and calendars, made from results and plans."""
