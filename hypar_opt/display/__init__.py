"""Views of results for people to read."""
