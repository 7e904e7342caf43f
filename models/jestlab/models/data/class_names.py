"""Names of classes in prompts: made canonical as in big_vision, and checked for being different."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def canonical(text: str, keep: str) -> str:
    """Replace `_` by space, strip punctuation but the string `keep`, lower the case, collapse spaces."""
    parts = text.replace("_", " ").split(keep)
    text = keep.join(part.translate(_NO_PUNCTUATION) for part in parts)
    return re.sub(r"\s+", " ", text.lower()).strip()


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Put every class into every template, class by class; names and templates are made canonical first.

    Args:
        class_names: C names; of aliases separated by commas the first counts.
        templates: T templates with `{c}` (CLIP_benchmark's) or `{}` (big_vision's) where the name goes.

    Returns:
        C × T prompts.
    """
    forms = [canonical(template.replace("{c}", "{}"), keep="{}") for template in templates]
    return [form.replace("{}", _in_prompts(name)) for name in class_names for form in forms]


def _in_prompts(class_name: str) -> str:
    return canonical(class_name, keep=",").split(",")[0]


def check_class_names(class_names: Iterable[str], source: Path) -> None:
    """Check that different names of classes are also different in prompts, as sentencepiece reads these.

    The same name twice is accepted: CLIP_benchmark's ImageNet has two classes "missile" and two "sunglasses".

    Args:
        class_names: The names.
        source: The file that they are from, for errors.

    Raises:
        ValueError: Two names have the same prompts, as "C#" and "C++" have: the second would never be found.
    """
    from sentencepiece import SentencePieceNormalizer

    normalize = SentencePieceNormalizer(rule_name="nmt_nfkc").normalize
    known = {"": ""}  # in prompts, a name of punctuation alone is empty
    for name in class_names:
        if (other := known.setdefault(normalize(_in_prompts(name)), name)) != name:
            raise ValueError(
                f"{source}: classes {other!r} and {name!r} are both {_in_prompts(name)!r} in prompts, which "
                "have no punctuation, capitals, or text after a comma: rename one of them"
            )
