"""Plans: the runs of a launch, their cost, and why each would run."""
