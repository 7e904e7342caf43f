"""The report of an experiment: one HTML page, and its tables and figures as files."""
