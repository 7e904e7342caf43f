"""Public pictures with captions: icon sets of the Iconify project, from npm."""
