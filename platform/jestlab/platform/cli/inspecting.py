"""What a folder of data holds, for people and programs: shards, a benchmark, or folders of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jestlab.models.data.benchmarks import classification, datasets_in, retrieval
from jestlab.models.data.curation import select
from jestlab.models.data.files import shard_files
from jestlab.models.data.images import ensure_decoded
from jestlab.models.data.metadata import load_metadata, metadata_columns, without_metadata
from jestlab.models.data.shards import ShardSource
from jestlab.platform.cli.output import counted
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, table

_SAMPLES = 8  # captions, and images that cannot be decoded
_COUNTED = ("noise", "license", "kind")  # columns whose values are counted, where there are such
_MOST_VALUES = 20
_DATA = (".tar", "nshards.txt")  # ends of the names of files that folders of data have
_SIDE = 8  # pixels: of images that are located, or decoded only to see whether that is possible
_MOST_DECODED = 250_000  # images of a folder; of more it isn't known which cannot be decoded


def summary(folder: Path, expression: str | None = None) -> dict[str, Any]:
    """Collect what a folder holds, as plain data.

    Args:
        folder: Of shards, of a benchmark's datasets, of one dataset, or of such folders.
        expression: A filter of shards.

    Raises:
        FileNotFoundError: It holds nothing of the kind.
        ValueError: A bad filter, or damaged data.
    """
    if any(folder.glob("*.tar")) or not folder.is_dir():
        return _shards(folder, expression)
    if (folder / "test" / "nshards.txt").exists():
        found = [entry for entry in datasets_in(folder.parent) if entry[0].name == folder.name]
    else:
        found = list(datasets_in(folder))
    if found:
        return {"folder": str(folder), "bytes": _bytes(folder), "datasets": [_dataset(*one) for one in found]}
    parts = [path for path in sorted(folder.iterdir()) if path.is_dir() and shard_files(path, _DATA)]
    if not parts:
        return _shards(folder, expression)  # which says what is missing
    return {
        "folder": str(folder),
        "bytes": _bytes(folder),
        "parts": [summary(part, expression) for part in parts],
    }


def _bytes(folder: Path) -> int:
    """Return how many bytes a folder's tars and tables have."""
    return sum(stat.st_size for _, stat in shard_files(folder, (".tar", ".parquet", ".txt", ".json")))


def _dataset(path: Path, name: str, for_retrieval: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"folder": str(path), "name": name}
    if for_retrieval:
        of = retrieval(path, _SIDE)
        return about | {"kind": "retrieval", "images": len(of.images), "captions": len(of.captions)}
    found = classification(path, _SIDE)
    return about | {
        "kind": "classification",
        "images": len(found.images),
        "train_images": len(found.train_images),
        "classes": len(found.class_names),
        "templates": list(found.templates),
    }


def _shards(folder: Path, expression: str | None) -> dict[str, Any]:
    source = ShardSource(folder)
    index, decoded = source.index, ensure_decoded(source, _SIDE, _MOST_DECODED * _SIDE * _SIDE * 3)
    is_whole = np.ones(len(source), bool) if decoded is None else decoded.whole
    whole, undecodable = np.flatnonzero(is_whole), np.flatnonzero(~is_whole)
    kept = np.intersect1d(select(folder, expression), whole)
    columns = metadata_columns(folder)
    found: dict[str, Any] = {
        "folder": str(folder),
        "shards": len(index.tars),
        "examples": len(whole),
        "bytes": _bytes(folder),
        "damaged": index.damaged | ({"undecodable image": n} if (n := len(undecodable)) else {}),
        "damaged_at": [*index.damaged_places, *map(index.describe, undecodable[:_SAMPLES].tolist())],
        "members": index.members,
        "columns": list(columns),
    }
    if expression is not None:
        found |= {"filter": expression, "kept": len(kept), "without_metadata": without_metadata(index)}
    for column in _COUNTED:
        if column in columns:
            values = load_metadata(folder, [column])[column]
            before, after = (Counter(str(values[i]) for i in examples) for examples in (whole, kept))
            found[column] = {
                value: {"examples": count} | ({} if expression is None else {"kept": after[value]})
                for value, count in before.most_common(_MOST_VALUES)
            }
    spread = kept[np.linspace(0, len(kept) - 1, min(_SAMPLES, len(kept))).astype(np.int64)]
    return found | {"captions": source.captions(spread)}


def lines(summary: dict[str, Any]) -> Iterator[Block]:
    """Write a summary for people."""
    size = f"{summary['bytes'] / 1e6:,.1f} MB"
    if "parts" in summary:
        yield f"{summary['folder']}: {counted(len(summary['parts']), 'folder')} of data, {size}"
        rows = [(Path(part["folder"]).name, *_in_short(part)) for part in summary["parts"]]
        yield table(("", "holds", "MB"), rows, right=(2,))
        return
    if "datasets" in summary:
        yield f"{summary['folder']}: benchmark of {counted(len(summary['datasets']), 'dataset')}, {size}"
        yield table(("dataset", "kind", "holds"), [_of_dataset(one) for one in summary["datasets"]])
        return
    yield from _of_shards(summary, size)


def _in_short(part: dict[str, Any]) -> tuple[str, str]:
    size = f"{part['bytes'] / 1e6:,.1f}"
    if "parts" in part:
        return f"{counted(len(part['parts']), 'folder')} of data", size
    if "datasets" in part:
        return "benchmark: " + "; ".join(" ".join(_of_dataset(one)[::2]) for one in part["datasets"]), size
    damaged = f", {sum(part['damaged'].values()):,} left out" if part["damaged"] else ""
    return f"{part['examples']:,} pairs in {counted(part['shards'], 'tar shard')}{damaged}", size


def _of_dataset(one: dict[str, Any]) -> tuple[str, str, str]:
    if one["kind"] == "retrieval":
        holds = f"{one['images']:,} images, {one['captions']:,} captions"
    else:
        holds = (
            f"{one['images']:,} images of {one['classes']:,} classes, {one['train_images']:,} to learn from"
        )
    return one["name"], one["kind"], holds


def _of_shards(summary: dict[str, Any], size: str) -> Iterator[Block]:
    examples, is_filtered = summary["examples"], "filter" in summary
    shards = counted(summary["shards"], "tar shard")
    yield f"{summary['folder']}: {examples:,} examples in {shards}, {size}"
    for reason, count in summary["damaged"].items():
        yield f"  left out: {count:,} × {reason}"
    yield from (f"    {one_line(place)}" for place in summary["damaged_at"])
    if len(summary["members"]) > 1:
        yield f"  members: {', '.join(f'{count:,} {kind}' for kind, count in summary['members'].items())}"
    for column in _COUNTED:
        if column not in summary:
            continue
        rows = []
        for value, counts in summary[column].items():
            row = [one_line(value), f"{counts['examples']:,}", f"{counts['examples'] / examples:.1%}"]
            if is_filtered:
                row += [f"{counts['kept']:,}", f"{counts['kept'] / counts['examples']:.1%}"]
            rows.append(row)
        headers = (column, "pairs", "share", *(("kept", "of kind") if is_filtered else ()))
        yield table(headers, rows, right=(1, 2, 3, 4))
    if is_filtered:
        without = f"; {count:,} have no metadata" if (count := summary["without_metadata"]) else ""
        yield f"the filter keeps {summary['kept']:,} ({summary['kept'] / max(examples, 1):.1%}){without}"
    if summary["columns"]:
        yield f"metadata: {', '.join(map(one_line, summary['columns']))}"
    yield "captions kept:" if is_filtered else "captions:"
    for caption in summary["captions"]:
        yield f"  {one_line(caption)}"
