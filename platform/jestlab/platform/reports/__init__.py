"""Reports: tables and figures from their options, and the files and the page of a study.

make.py      makes a table or a figure from its options
selected.py  reads the images that runs selected
update.py    writes the reports of a study, and rewrites them after a change
"""

from jestlab.platform.reports.update import (
    BUILD_FILE,
    Made,
    bring_up_to_date,
    build_key,
    tables_of,
    write_page,
    write_reports,
)

__all__ = [
    "BUILD_FILE",
    "Made",
    "bring_up_to_date",
    "build_key",
    "tables_of",
    "write_page",
    "write_reports",
]
