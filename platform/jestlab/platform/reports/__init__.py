"""Reports: tables and figures from their options, and the files and the page of a study.

make.py      makes a table or a figure from its options
selected.py  reads the images that runs selected
update.py    writes the reports of a study, and rewrites them after a change
"""

from jestlab.platform.reports.update import BUILD_FILE as BUILD_FILE
from jestlab.platform.reports.update import Made as Made
from jestlab.platform.reports.update import bring_up_to_date as bring_up_to_date
from jestlab.platform.reports.update import build_key as build_key
from jestlab.platform.reports.update import tables_of as tables_of
from jestlab.platform.reports.update import write_page as write_page
from jestlab.platform.reports.update import write_reports as write_reports
