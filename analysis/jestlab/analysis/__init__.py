"""What it means: costs in FLOPs, tables, curves and Pareto fronts, read from the results store's views."""
