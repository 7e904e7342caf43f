"""What a launch would run: the plan, its cost, and why each run would run."""
