"""How runs stand, for people who look: states, what they wait for, progress, costs; once or repeatedly."""
