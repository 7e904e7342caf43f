"""Random access to the examples of a folder of webdataset tars: an index of offsets, and a reader."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shutil
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import map_array, open_derived, shard_files
from jestlab.models.data.tars import FILE, Fault, scan

_FORMAT = 6  # of the index files; another number is another name
_IMAGES = ("jpg", "jpeg", "png", "webp")
_KNOWN = {*_IMAGES, "txt", "json"}
_SHARD = re.compile(
    r"(?i)(?P<stem>.+?)"
    r"((?P<compressed>\.tar\.(gz|bz2|xz|zstd?|lz4|lzma|lzo?|z|br|7z|zip)|\.(tgz|tbz2?|txz|tzst|taz|tlz))"
    r"|\.tar|(?=\.crdownload))(?P<part>\.(part[._-]?)?([a-z]{2}|\d+))?"
    r"(?P<unfinished>(\.\w+)?_?\.(part|partial|filepart|tmp|temp|incomplete|download|crdownload|gstmp|aria2|!qb))?"
)
_COMPRESSED = "compressed shard (decompress it)"
_PART = "part of a shard (join its parts)"
_UNFINISHED = "shard whose download has not finished"
_LINKED = "link to another shard (which is read once)"
_DOTTED = "dot in the name (a pair if split at its last dot, not the first as in webdataset: rename it)"
_USED, _DAMAGED, _OTHER = "of examples", "damaged", "other file"  # and the kinds of tar members
_OPEN_FILES = 128
_PLACES = 3  # of damaged examples that are named
_LONGEST_TEXT = 1 << 20  # bytes of a caption, or of metadata
_DEEPEST = 32  # levels of lists and mappings in metadata
_LOG_SECONDS = 10.0
_LOG = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShardIndex:
    """The location of each example's image, caption and metadata; examples are numbered over the tars in name
    order.

    n examples in s tars. The index is built once, kept beside the shards and memory-mapped, so that neither
    building nor loading it holds more than one tar's examples in memory. Damaged examples have no number:
    those that lack an image or a caption, whose caption is blank, not UTF-8 or longer than a megabyte, whose
    metadata are unreadable and in no parquet beside the tar either, or that are in an unreadable part of
    their tar. Captions and metadata are read when the index is built, since each is in the page that its
    header was read from; so the examples and their order are known before training. Images that cannot be
    decoded are found later, when they are decoded.

    Attributes:
        folder: The folder of tars.
        tars: Paths of the tars within it, sorted, s of them; folders within it count too.
        signature: Changes whenever a tar does; cheap, and no measure of content as `datasets.digest` is.
        starts: int64[s + 1], number of each tar's first example; n at the end.
        image: int64[n, 2], offset and size of the image file.
        text: int64[n, 2], the same of the caption.
        meta: int64[n, 2], the same of the JSON metadata; (0, 0) where there is none.
        damaged: How many examples, members or tars were left out, by reason.
        damaged_places: Where the first few were.
        unread: How many tars were left out whole: compressed, not completely downloaded, or no tars.
        members: How many members the tars have: of examples, damaged, and of each kind that is not read.
    """

    folder: Path
    tars: tuple[str, ...]
    signature: str
    starts: Ints
    image: Ints
    text: Ints
    meta: Ints
    damaged: dict[str, int]
    damaged_places: tuple[str, ...]
    unread: int
    members: dict[str, int]
    _keys: npt.NDArray[np.uint8]
    _key_ends: Ints

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
        first, last = int(self.starts[shard]), int(self.starts[shard + 1])
        ends = self._key_ends[first:last].tolist()
        start = int(self._key_ends[first - 1]) if first else 0
        joint = self._keys[start : ends[-1] if ends else start].tobytes()
        spans = zip([start, *ends], ends, strict=False)
        return [joint[a - start : b - start].decode(errors="replace") for a, b in spans]

    def describe(self, example: int) -> str:
        """Return the shard and key of an example, for messages."""
        start = self._key_ends[example - 1] if example else 0
        key = self._keys[start : self._key_ends[example]].tobytes().decode(errors="replace")
        return f"{self.folder / self.tars[int(self.shard(np.array(example)))]}, example {key!r}"

    def damage(self) -> str | None:
        """Return one line on what was left out, and where first; None if nothing was."""
        if not self.damaged:
            return None
        more = ", …" if sum(self.damaged.values()) > len(self.damaged_places) else ""
        return f"{_in_words(self.damaged)} (first at {', '.join(self.damaged_places)}{more})"

    def left_out(self, without_metadata: int = 0) -> str:
        """Return one line on damage, missing metadata and members that are not read; empty if none."""
        others = {kind: count for kind, count in self.members.items() if kind not in (_USED, _DAMAGED)}
        others |= {"no metadata": without_metadata} if without_metadata else {}
        return ", ".join(filter(None, (self.damage(), _in_words(others))))

    def check(self, damaged_share: float, without_metadata: int = 0) -> None:
        """Log which examples and members are left out, and raise if too many of them are damaged.

        A tar that was left out whole counts as many examples as tars hold on average.

        Args:
            damaged_share: Largest share of all examples that may be damaged, in whole examples, rounded up:
                one of 50 may at a share of 0.01, none at 0.
            without_metadata: How many examples lack the metadata by which the run chooses examples.

        Raises:
            ValueError: More is.
        """
        damaged = sum(self.damaged.values()) + self.unread * (len(self) // len(self.tars))
        examples, damaged = len(self) + damaged, damaged + without_metadata
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
    def load(cls, folder: Path) -> ShardIndex:
        """Load the index that is kept beside the shards; rebuild it if it is missing, stale or damaged.

        Where the folder may not be written to, it is kept in this user's part of the temporary folder.

        Args:
            folder: A folder with tars, at any depth.

        Raises:
            FileNotFoundError: There is no such folder, or no tar in it.
            ValueError: It does not hold a single complete example.
        """
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder of shards")
        tars, left_out, signature = _shards(folder)
        if not tars:
            raise FileNotFoundError(
                f"{folder}: holds no .tar shards, or only compressed ones (img2dataset writes them with "
                "output_format=webdataset)"
            )
        name = f"index-{_FORMAT}-{signature[:16]}"

        def build(partial: Path) -> None:
            _build(folder, tars, left_out, partial)
            for stale in partial.parent.glob("index-*"):
                shutil.rmtree(stale, ignore_errors=True)

        return open_derived(folder, name, build, lambda kept: cls._open(folder, tars, signature, kept))

    @classmethod
    def _open(cls, folder: Path, tars: tuple[str, ...], signature: str, kept: Path) -> ShardIndex:
        """Map the files of an index; any error means that they are damaged."""
        summary = json.loads((kept / _SUMMARY).read_text())
        starts = np.array(summary["starts"], np.int64)
        n, bytes_of_keys = int(starts[-1]), int(summary["key_bytes"])
        if len(starts) != len(tars) + 1:
            raise ValueError("made from other tars")
        spans = map_array(kept / _SPANS, np.int64, (n, 3, 2))
        return cls(
            folder=folder,
            tars=tars,
            signature=signature,
            starts=starts,
            image=spans[:, 0],
            text=spans[:, 1],
            meta=spans[:, 2],
            damaged={str(reason): int(count) for reason, count in summary["damaged"].items()},
            damaged_places=tuple(map(str, summary["damaged_places"])),
            unread=int(summary["unread"]),
            members={str(kind): int(count) for kind, count in summary["members"].items()},
            _keys=map_array(kept / _KEYS, np.uint8, (bytes_of_keys,)),
            _key_ends=map_array(kept / _KEY_ENDS, np.int64, (n,)),
        )


_SUMMARY, _SPANS, _KEYS, _KEY_ENDS = "index.json", "spans.int64", "keys.bytes", "key_ends.int64"


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} × {what}" for what, count in counts.items())


def _shards(folder: Path) -> tuple[tuple[str, ...], dict[str, str], str]:
    """Return a folder's tars, the shards that are left out with the reason, and a signature of them all."""
    tars: dict[tuple[int, ...], str] = {}
    left_out: dict[str, str] = {}
    stats, stems = [], set()
    for path, about in shard_files(folder, ("",)):
        if not (shard := _SHARD.fullmatch(name := path.as_posix())):
            continue
        stats.append((about.st_size, about.st_mtime_ns))
        kinds = (("unfinished", _UNFINISHED), ("part", _PART), ("compressed", _COMPRESSED))
        if reason := next((reason for kind, reason in kinds if shard[kind]), None):
            if shard["stem"] not in stems:  # the tar itself, if it is there, is earlier in the order of names
                left_out[name] = reason
        elif tars.setdefault((about.st_dev, about.st_ino, *stats[-1]), name) != name:
            left_out[name] = _LINKED
        stems.add(shard["stem"])
    names = tuple(tars.values())
    return names, left_out, hashlib.sha256(repr((names, left_out, stats)).encode()).hexdigest()


def _build(folder: Path, tars: tuple[str, ...], left_out: Mapping[str, str], kept: Path) -> None:
    """Scan the tars one by one, and write their index as it grows."""
    starts, key_bytes = [0], 0
    members: Counter[str] = Counter()
    damaged = Counter(left_out.values())
    unread = len(left_out) - damaged[_LINKED]
    places = list(left_out)[:_PLACES]
    next_log = time.monotonic() + _LOG_SECONDS
    with (
        (kept / _SPANS).open("wb") as spans_file,
        (kept / _KEYS).open("wb") as keys_file,
        (kept / _KEY_ENDS).open("wb") as ends_file,
    ):
        for number, name in enumerate(tars):
            examples, faults, uses = _examples(folder / name)
            members.update(uses)
            unread += bool(faults) and not uses
            keys = [example.key.encode(errors="surrogateescape") for example in examples]
            spans = [(*example.image, *example.text, *example.meta) for example in examples]
            spans_file.write(np.array(spans, np.int64).tobytes())
            keys_file.write(b"".join(keys))
            ends = key_bytes + np.cumsum([len(key) for key in keys], dtype=np.int64)
            ends_file.write(ends.tobytes())
            key_bytes = int(ends[-1]) if keys else key_bytes
            starts.append(starts[-1] + len(examples))
            damaged.update(reason for reason, _ in faults)
            places += [f"{name}: {place}" for _, place in faults[: _PLACES - len(places)]]
            if time.monotonic() > next_log:
                next_log = time.monotonic() + _LOG_SECONDS
                done = f"{number + 1:,} of {len(tars):,} shards, {starts[-1]:,} examples"
                _LOG.info("%s: indexed %s", folder, done)
    if not starts[-1]:
        reasons = _in_words(damaged) or "no image files"
        raise ValueError(f"{folder}: no complete example in {len(tars)} tar shards: {reasons}")
    summary = {
        "starts": starts,
        "key_bytes": key_bytes,
        "damaged": dict(damaged.most_common()),
        "damaged_places": places,
        "unread": unread,
        "members": dict(members.most_common()),
    }
    (kept / _SUMMARY).write_text(json.dumps(summary))


Span = tuple[int, int]


class _Example(NamedTuple):
    """The key of a complete example, and where its files are."""

    key: str
    image: Span
    text: Span
    meta: Span


def _examples(path: Path) -> tuple[list[_Example], list[tuple[str, str]], Counter[str]]:
    """Return a tar's complete examples, reason and place of each damage, and what its members are used for.

    A key ends at the first dot of a name, as in webdataset. Names such as `a.b.jpg`, which then have no kind
    that is read, are split at their last dot. They are damaged if `a.b` is a pair, or `a` isn't a pair.
    """
    groups: dict[str, dict[str, Span]] = {}
    examples: list[_Example] = []
    damaged: list[tuple[str, str]] = []
    uses: Counter[str] = Counter()
    for member in scan(path):
        if isinstance(member, Fault):
            damaged.append((member.reason, f"byte {member.offset}"))
            continue
        head, slash, base = member.name.rpartition("/")
        stem, _, kind = base.partition(".")
        if kind.lower() not in _KNOWN:
            stem, _, kind = base.rpartition(".")
        kind, span = kind.lower(), (member.offset, member.size)
        reason = None
        if member.kind != FILE:
            uses[member.kind] += 1
        # Nothing is extracted, so such a path is harmless, but no honest tool writes it.
        elif member.name.startswith("/") or ".." in head.split("/"):
            reason = "path outside the shard"
        elif not stem or stem.startswith(".") or kind not in _KNOWN:
            uses[_OTHER] += 1
        elif groups.setdefault(head + slash + stem, {}).setdefault(kind, span) != span:
            reason = "repeated name"
        if reason:
            damaged.append((reason, repr(member.name)))
            uses[_DAMAGED] += 1
    pairs = {key for key, files in groups.items() if "txt" in files and not files.keys().isdisjoint(_IMAGES)}
    in_table = path.with_suffix(".parquet").exists()  # which then serves in the place of the JSON files
    with path.open("rb") as file:
        for key, files in groups.items():
            image = next((files[extension] for extension in _IMAGES if extension in files), None)
            text, meta = files.get("txt"), files.get("json", (0, 0))
            place, slash, stem = key.rpartition("/")
            shorter = place + slash + stem.partition(".")[0]
            if shorter != key and {key, shorter} & pairs:
                reason = _DOTTED if key in pairs else None
            else:
                reason = _reason(file.fileno(), image, text, (0, 0) if in_table else meta)
            used = 0 if reason or shorter != key else 2 + ("json" in files)
            uses += {_USED: used, _DAMAGED if reason else _OTHER: len(files) - used}
            if reason:
                damaged.append((reason, f"example {key!r}"))
            elif image and text:
                examples.append(_Example(key, image, text, meta))
    return examples, damaged, uses


def _reason(descriptor: int, image: Span | None, text: Span | None, meta: Span) -> str | None:
    """Return why an example is damaged; None if it is not."""
    if image is None or text is None:
        return "no caption" if image else "no image"
    if not image[1]:
        return "empty image"
    if text[1] > _LONGEST_TEXT:
        return "caption too long"
    try:
        caption = os.pread(descriptor, text[1], text[0]).decode()
    except UnicodeDecodeError:
        return "caption not UTF-8"
    if not any(letter.isprintable() and not letter.isspace() for letter in caption):
        return "blank caption"
    if meta[1] > _LONGEST_TEXT or (meta[1] and not _is_metadata(os.pread(descriptor, meta[1], meta[0]))):
        return "unreadable metadata"
    return None


def _is_metadata(content: bytes) -> bool:
    """Whether these bytes are a JSON object whose values tables can hold."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and fits_a_table(value)


def fits_a_table(value: Any, levels: int = _DEEPEST) -> bool:
    """Whether a value is text of whole letters, a number of 64 bits, or some levels of lists of these."""
    if isinstance(value, dict | list):
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return levels > 0 and all(fits_a_table(part, levels - 1) for part in parts)
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


class _OpenFile:
    """A file descriptor that is closed when its last user releases it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor).atexit = False


class ShardSource:
    """Reads examples by their number. Thread-safe and cheap to pickle; files are opened on first use."""

    def __init__(self, folder: Path, index: ShardIndex | None = None) -> None:
        self.index = index or ShardIndex.load(folder)
        self._files: OrderedDict[int, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> Path:
        return self.index.folder

    def __setstate__(self, folder: Path) -> None:
        self.__init__(folder)  # type: ignore[misc]

    def images(self, indices: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """Read the image files.

        Args:
            indices: int[k], global example numbers, in any order.

        Raises:
            ValueError: A tar has become shorter than its index says.
        """
        return self._read(indices, self.index.image)

    def captions(self, indices: npt.NDArray[np.integer[Any]]) -> list[str]:
        """Read the captions; see `images`."""
        return [text.decode() for text in self._read(indices, self.index.text)]

    def metadata(self, indices: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """Read the JSON metadata, unparsed; empty where an example has none."""
        return self._read(indices, self.index.meta)

    def _read(self, indices: npt.NDArray[np.integer[Any]], spans: Ints) -> list[bytes]:
        """Read the bytes of one part of each example."""
        contents = []
        shards = self.index.shard(indices).tolist()
        for position, (shard, (offset, size)) in enumerate(zip(shards, spans[indices].tolist(), strict=True)):
            file = self._file(shard)  # held here, so that it cannot be closed by another thread's eviction
            content = os.pread(file.descriptor, size, offset)
            if len(content) != size:
                raise ValueError(
                    f"{self.index.describe(indices[position])}: cut short, {len(content)} of {size} bytes: "
                    "fetch the shard again"
                )
            contents.append(content)
        return contents

    def _file(self, shard: int) -> _OpenFile:
        """Return an open tar; the least recently used one is released when too many are open."""
        with self._lock:
            file = self._files.get(shard)
            if file is None:
                file = _OpenFile(self.index.folder / self.index.tars[shard])
                self._files[shard] = file
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(shard)
            return file
