"""What each database says in its own way."""
