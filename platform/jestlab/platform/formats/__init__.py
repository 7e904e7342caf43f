"""Results in the formats of other tools, so that nobody is locked in.

`results` reads runs from the store one by one; each other module writes them in one format. They meet in
`kinds`.
"""
