"""Public pictures with captions: icon sets of the Iconify project, from npm.

The curated data are emoji of three styles, drawn for people and named with care. The web has these and other
styles of emoji among many more logos, tokens, flags, and icons of files and user interfaces, with captions as
web pages have them. Two styles of emoji are in neither: the benchmarks for tuning and for results. All
pictures are drawings, not photographs.
"""
