"""What is asked, what is chosen, and the plan file."""
