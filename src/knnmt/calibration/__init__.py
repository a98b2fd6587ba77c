"""What fits a store without tuning: its estimated settings, how certain its translations are, and its index."""
