"""A lab: the folder or bucket that holds everything a user's runs write."""
