"""Exchange with other labs and tools: archives, adopted runs, and exports."""
