"""Custom code that configs and specs name.

A name is an entry point of an installed package, or a reference: `package.module:function` or
`path/to/file.py:function`.

kinds.py       the kinds of custom code, and the entry points of each kind
references.py  finds, checks, and imports the code of a reference
content.py     the digest of code, without comments; the files that code imports
"""

from jestlab.models.extensions.content import digest as digest
from jestlab.models.extensions.kinds import GIVEN as GIVEN
from jestlab.models.extensions.kinds import GROUPS as GROUPS
from jestlab.models.extensions.kinds import CustomFunction as CustomFunction
from jestlab.models.extensions.kinds import Kind as Kind
from jestlab.models.extensions.kinds import check_name as check_name
from jestlab.models.extensions.kinds import code_of as code_of
from jestlab.models.extensions.kinds import installed as installed
from jestlab.models.extensions.kinds import load as load
from jestlab.models.extensions.kinds import reference_of as reference_of
from jestlab.models.extensions.kinds import uses as uses
