"""A real web of pictures with captions: icon sets that npm has, as packages of the Iconify project.

The emoji of three styles, drawn for people and named with care, are the curated data; a web holds other
styles of emoji among many more logos, tokens, flags, file types and interface icons, captioned as web pages
name pictures; an emoji style that nobody trains on is the test, another the validation. They are drawings,
not photographs.
"""
