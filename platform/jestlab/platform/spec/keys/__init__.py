"""The reference of all keys of a spec and of its configs, read from the classes that validate them.

What a key means is written once: in the `Attributes:` section of the class that has it.
"""

from jestlab.platform.spec.keys.find import find, together
from jestlab.platform.spec.keys.key import REQUIRED, Key
from jestlab.platform.spec.keys.markdown import markdown
from jestlab.platform.spec.keys.of_config import config_keys
from jestlab.platform.spec.keys.of_spec import spec_keys

__all__ = ["REQUIRED", "Key", "config_keys", "find", "markdown", "spec_keys", "together"]
