"""Labs as archives, which go from any database to any other: rows as JSON lines, and files.

Rows say runs by fingerprint, experiments by name and attempts by number. In the order of the archive:

    jestlab.json             format and schema
    tables/<table>.jsonl     rows
    runs/<folder>/…          logs, and on demand all else that completed runs left
    reports/<experiment>/…   tables and figures
    checksums.json           SHA-256 of each of these: without it, an archive is cut short

Nothing in one is executed or unpickled.
"""
