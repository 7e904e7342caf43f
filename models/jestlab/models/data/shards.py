"""Index a folder of tars: which members form examples, which are damaged; read examples by number.

This is the one place where members of tars become examples, and where all other members are counted.
"""

import hashlib
import itertools
import json
import logging
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import log_progress, map_array, open_derived, shard_files
from jestlab.models.data.tars import FILE, Fault, scan

_FORMAT = 7  # of the index files; increase it when they change
_IMAGES = ("jpg", "jpeg", "png", "webp")
_TEXTS = {"txt": "caption", "cls": "label"}
_SHARD = re.compile(
    r"(?i)(?P<stem>.+)\.(tar|tgz|tbz2?|taz|txz|tlz|tzst)(?![^\W_])"  # no letter or digit follows
    r"(?!.*\.(csv|idx|index|json|log|md5|parquet|sha\d+|txt)$)"  # lists, indexes, and checksums of shards
)
_UNREADABLE = "shard in another form than .tar (decompress it, join its parts, or complete its download)"
_LINKED = "link to another shard (which is read once)"
_DOTTED = "dot in the name (a pair if split at its last dot, not the first as in webdataset: rename it)"
_USED, _DAMAGED, _OTHER = "of examples", "damaged", "other file"  # and the kinds of tar members
_SUMMARY, _SPANS, _KEYS = "index.json", "spans.int64", "keys.bytes"
_PLACES = 3  # of damaged examples that are named
_LONGEST_TEXT = 1 << 20  # bytes of a caption, or of metadata
_DEEPEST = 32  # levels of lists and mappings in metadata
_LOG = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """Reads a folder's examples by their number, which counts over the sorted tars; thread-safe.

    The index of n examples in s tars is built once, stored next to the shards, and memory-mapped, so that
    memory contains the examples of one tar at most. Damaged examples have no number: those without an image
    or a caption; those whose caption is blank, not UTF-8, or longer than a megabyte; those with unreadable
    metadata, if no parquet file replaces them; and those in an unreadable part of a tar. So the examples and
    their order are known before training. Images that cannot be decoded are detected at decoding.

    Attributes:
        tars: Paths of the s tars within the folder and its subfolders, sorted.
        signature: Changes whenever a tar's size or time does; `datasets.digest` identifies the content.
        starts: int64[s + 1], number of each tar's first example; n at the end.
        spans: int64[n, 3, 2], offset and size, in bytes, of the image, the caption, and the JSON metadata;
            (0, 0) without metadata.
        damaged: Reason → number of examples, members, or tars that were left out.
        damaged_places: The first few places with damage.
        unread: Number of tars that were left out as a whole.
        members: Use → number of members of the tars: of examples, damaged, and each kind that is not read.
    """

    folder: Path
    tars: tuple[str, ...]
    signature: str
    starts: Ints
    spans: Ints
    _keys: npt.NDArray[np.uint8]  # "\0" ends each key
    _key_starts: Ints  # int64[s + 1], where the keys of each tar start; their length at the end
    damaged: dict[str, int]
    damaged_places: list[str]
    unread: int
    members: dict[str, int]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def shard(self, examples: npt.NDArray[np.integer[Any]]) -> Ints:
        """Return the tar of each example: int64[k] of positions in `tars`."""
        return np.searchsorted(self.starts[1:], examples, side="right")

    def examples(self, shard: int) -> Ints:
        """Return the numbers of a tar's examples, ascending."""
        return np.arange(self.starts[shard], self.starts[shard + 1])

    def keys(self, shard: int) -> list[str]:
        """Return the webdataset keys of a tar's examples, in their order; unique within the tar."""
        start, end = self._key_starts[shard : shard + 2]
        return self._keys[start:end].tobytes().decode(errors="replace").split("\0")[:-1]

    def describe(self, example: int) -> str:
        """Return the shard and key of an example, for messages."""
        shard = int(self.shard(np.array(example)))
        key = self.keys(shard)[example - int(self.starts[shard])]
        return f"{self.folder / self.tars[shard]}, example {key!r}"

    def images(self, indices: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """Read the image files.

        Args:
            indices: int[k], global example numbers, in any order.

        Raises:
            ValueError: A tar has become shorter since it was indexed.
        """
        return self._read(indices, 0)

    def captions(self, indices: npt.NDArray[np.integer[Any]]) -> list[str]:
        """Read the captions; see `images`."""
        return [text.decode() for text in self._read(indices, 1)]

    def metadata(self, indices: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """Read the JSON metadata, unparsed; empty for an example without metadata."""
        return self._read(indices, 2)

    def _read(self, indices: npt.NDArray[np.integer[Any]], part: int) -> list[bytes]:
        """Read the bytes of one part of each example."""
        return read_spans(
            lambda shard: self.folder / self.tars[shard],
            self.shard(indices),
            self.spans[indices, part],
            lambda row: self.describe(int(indices[row])),
        )

    def left_out(self, without_metadata: int = 0) -> str:
        """Return one line on damage, missing metadata, and members that are not read; empty if none."""
        others = {kind: count for kind, count in self.members.items() if kind not in (_USED, _DAMAGED)}
        others |= {"no metadata": without_metadata} if without_metadata else {}
        parts = [_in_words(self.damaged), _in_words(others)]
        if self.damaged:
            more = ", …" if sum(self.damaged.values()) > len(self.damaged_places) else ""
            parts[0] += f" (first at {', '.join(self.damaged_places)}{more})"
        return ", ".join(filter(None, parts))

    def check(self, damaged_share: float, without_metadata: int = 0) -> None:
        """Log which examples and members are left out; raise ValueError if too many of them are damaged.

        A tar that was left out as a whole counts as many examples as the other tars contain on average.

        Args:
            damaged_share: Maximum share of damaged examples; the allowed number is rounded up.
            without_metadata: Number of examples without the metadata by which the run chooses examples.
        """
        damaged = sum(self.damaged.values()) + self.unread * (len(self) // len(self.tars))
        examples = len(self) + damaged
        damaged += without_metadata
        left_out = self.left_out(without_metadata)
        if damaged > math.ceil(damaged_share * examples):
            raise ValueError(
                f"{self.folder}: {damaged / examples:.2%} of its examples are damaged, above "
                f"runtime.damaged_share {damaged_share:.2%}: {left_out}: fetch or repair these shards, or "
                "raise runtime.damaged_share"
            )
        if left_out:
            _LOG.log(logging.WARNING if damaged else logging.INFO, "%s: left out: %s", self.folder, left_out)

    @classmethod
    def load(cls, folder: Path) -> "ShardIndex":
        """Load the index of a folder with tars, at any depth; build it if missing, outdated, or damaged.

        Raises:
            FileNotFoundError: The folder does not exist, or does not contain a tar.
            ValueError: The tars do not contain a complete example.
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder of shards")
        tars, left_out, signature = _find_shards(folder)
        if not tars:
            raise FileNotFoundError(f"{folder}: holds no .tar shards, or only compressed ones")

        def build(partial: Path) -> None:
            _build(folder, tars, left_out, partial)
            for stale in partial.parent.glob("index-*"):
                shutil.rmtree(stale, ignore_errors=True)

        def open_(kept: Path) -> "ShardIndex":
            about = json.loads((kept / _SUMMARY).read_text())
            starts, key_starts = (np.array(about.pop(name), np.int64) for name in ("starts", "key_starts"))
            spans = map_array(kept / _SPANS, np.int64, (int(starts[-1]), 3, 2))
            keys = map_array(kept / _KEYS, np.uint8, (int(key_starts[-1]),))
            return cls(folder, tars, signature, starts, spans, keys, key_starts, **about)

        return open_derived(folder, f"index-{_FORMAT}-{signature[:16]}", build, open_)


def read_spans(
    tar: Callable[[int], Path], shards: Ints, spans: Ints, describe: Callable[[int], str]
) -> list[bytes]:
    """Read parts of tars, one tar after another.

    Args:
        tar: Returns the path of a tar, given its number.
        shards: int64[k], the number of each part's tar.
        spans: int64[k, 2], offset and size of each part in its tar.
        describe: Describes a row, from 0 to k − 1, for messages.

    Raises:
        ValueError: A tar is shorter than its parts.
    """
    contents = [b""] * len(shards)
    of_row, places = shards.tolist(), spans.tolist()
    rows = sorted(range(len(of_row)), key=of_row.__getitem__)
    for shard, group in itertools.groupby(rows, key=of_row.__getitem__):
        with tar(shard).open("rb", buffering=0) as file:
            for row in group:
                offset, size = places[row]
                contents[row] = os.pread(file.fileno(), size, offset)
                if (found := len(contents[row])) != size:
                    problem = f"cut short, {found} of {size} bytes"
                    raise ValueError(f"{describe(row)}: {problem}: fetch the shard again")
    return contents


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} × {what}" for what, count in counts.items())


def _find_shards(folder: Path) -> tuple[tuple[str, ...], dict[str, str], str]:
    """Return a folder's tars, the shards that are left out with the reason, and a signature of all."""
    tars: dict[tuple[int, ...], str] = {}
    left_out: dict[str, str] = {}
    stats, stems = [], set()
    for path, about in shard_files(folder, ("",)):
        if not (shard := _SHARD.match(path.name)):
            continue
        name, stem = path.as_posix(), path.with_name(shard["stem"])
        stats.append((about.st_size, about.st_mtime_ns))
        if path.suffix.lower() != ".tar":
            if stem not in stems:  # whose tar would come first in the order of names
                left_out[name] = _UNREADABLE
        elif tars.setdefault((about.st_dev, about.st_ino, *stats[-1]), name) != name:
            left_out[name] = _LINKED
        stems.add(stem)
    names = tuple(tars.values())
    return names, left_out, hashlib.sha256(repr((names, left_out, stats)).encode()).hexdigest()


def _build(folder: Path, tars: tuple[str, ...], left_out: Mapping[str, str], kept: Path) -> None:
    """Scan the tars one by one, and write their index as it grows."""
    starts, key_starts = [0], [0]
    members: Counter[str] = Counter()
    damaged = Counter(left_out.values())
    unread = damaged[_UNREADABLE]
    places = [*left_out]
    scanned = ((name, *find_examples(folder / name)) for name in tars)
    with (kept / _SPANS).open("wb") as spans_file, (kept / _KEYS).open("wb") as keys_file:
        for name, examples, faults, uses in log_progress(scanned, len(tars), f"{folder}: indexed"):
            members.update(uses)
            unread += bool(faults) and not uses
            spans_file.write(np.array([*examples.values()], np.int64).tobytes())
            starts.append(starts[-1] + len(examples))
            keys = "".join(f"{key}\0" for key in examples).encode(errors="surrogateescape")
            keys_file.write(keys)
            key_starts.append(key_starts[-1] + len(keys))
            damaged.update(reason for reason, _ in faults)
            places += [f"{name}: {place}" for _, place in faults[:_PLACES]]
    if not starts[-1]:
        reasons = _in_words(damaged) or "no image files"
        raise ValueError(f"{folder}: no complete example in {len(tars)} tar shards: {reasons}")
    summary = {
        "starts": starts,
        "key_starts": key_starts,
        "damaged": dict(damaged.most_common()),
        "damaged_places": places[:_PLACES],
        "unread": unread,
        "members": dict(members.most_common()),
    }
    (kept / _SUMMARY).write_text(json.dumps(summary))


Span = tuple[int, int]


def find_examples(
    path: Path, images: Sequence[str] = _IMAGES, text: str = "txt", metadata: str = "json"
) -> tuple[dict[str, list[Span]], list[tuple[str, str]], Counter[str]]:
    """Find the complete examples of a tar, and count all of its members.

    As in webdataset, a key ends at the first dot of a name. A name with another extension then, such as
    `a.b.jpg`, is split at its last dot. It is damaged if `a.b` is a pair, or `a` isn't a pair.

    Args:
        images: Extensions of images; of an example with several, the first one is read.
        text: Extension of the captions ("txt") or labels ("cls").
        metadata: Extension of the metadata; "" reads none.

    Returns:
        Key → spans of the image, text, and metadata; reason and place of each damage; use → members.
    """
    groups: dict[str, dict[str, Span]] = {}
    examples: dict[str, list[Span]] = {}
    damaged: list[tuple[str, str]] = []
    uses: Counter[str] = Counter()
    known = {*images, text, metadata} - {""}
    for member in scan(path):
        if isinstance(member, Fault):
            damaged.append((member.reason, f"byte {member.offset}"))
            continue
        head, slash, base = member.name.rpartition("/")
        stem, _, kind = base.partition(".")
        if kind.lower() not in known:
            stem, _, kind = base.rpartition(".")
        kind, span = kind.lower(), (member.offset, member.size)
        reason = None
        if member.kind != FILE:
            uses[member.kind] += 1
        # Nothing is extracted, so such a path is harmless, but no honest tool writes it.
        elif member.name.startswith("/") or ".." in head.split("/"):
            reason = "path outside the shard"
        elif not stem or stem.startswith(".") or kind not in known:
            uses[_OTHER] += 1
        elif groups.setdefault(head + slash + stem, {}).setdefault(kind, span) != span:
            reason = "repeated name"
        if reason:
            damaged.append((reason, repr(member.name)))
            uses[_DAMAGED] += 1
    pairs = {key for key, files in groups.items() if text in files and not files.keys().isdisjoint(images)}
    in_table = path.with_suffix(".parquet").exists()  # which then replaces the JSON files
    with path.open("rb") as file:
        for key, files in groups.items():
            image = next((files[extension] for extension in images if extension in files), None)
            target, meta = files.get(text), files.get(metadata, (0, 0))
            place, slash, stem = key.rpartition("/")
            shorter = place + slash + stem.partition(".")[0]
            if shorter != key and {key, shorter} & pairs:
                reason = _DOTTED if key in pairs else None
            else:
                reason = _reason(file.fileno(), image, target, (0, 0) if in_table else meta, _TEXTS[text])
            used = 0 if reason or shorter != key else 2 + (metadata in files)
            uses += {_USED: used, _DAMAGED if reason else _OTHER: len(files) - used}
            if reason:
                damaged.append((reason, f"example {key!r}"))
            elif image and target:
                examples[key] = [image, target, meta]
    return examples, damaged, uses


def _reason(descriptor: int, image: Span | None, text: Span | None, meta: Span, name: str) -> str | None:
    """Return why an example is damaged; None if it is not."""
    if image is None or text is None:
        return f"no {name}" if image else "no image"
    if not image[1]:
        return "empty image"
    if text[1] > _LONGEST_TEXT:
        return f"{name} too long"
    try:
        caption = os.pread(descriptor, text[1], text[0]).decode()
    except UnicodeDecodeError:
        return f"{name} not UTF-8"
    if not any(letter.isprintable() and not letter.isspace() for letter in caption):
        return f"blank {name}"
    if meta[1] > _LONGEST_TEXT or (
        meta[1] and parse_metadata(os.pread(descriptor, meta[1], meta[0])) is None
    ):
        return "unreadable metadata"
    return None


def parse_metadata(content: bytes) -> dict[str, Any] | None:
    """Parse a JSON object whose values tables can contain; return None if it is something else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and fits_a_table(value) else None


def fits_a_table(value: Any, levels: int = _DEEPEST) -> bool:
    """Whether a value is text of whole letters, a number of 64 bits, or some levels of lists of these."""
    if isinstance(value, dict | list):
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return levels > 0 and all(fits_a_table(part, levels - 1) for part in parts)
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63
