"""The content of a folder of data, for people and programs: shards, a benchmark, or folders of either."""

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
from jestlab.platform.logs import one_line
from jestlab.platform.render import Block, table
from jestlab.platform.words import counted

_SAMPLES = 8  # captions, and places of undecodable images
_COUNTED = ("noise", "license", "kind")  # columns whose values are counted
_MOST_VALUES = 20
_DATA = (".tar", "nshards.txt")  # endings of the files in folders of data
_SIDE = 8  # pixels of images that are decoded only to check them
_MOST_DECODED = 250_000  # images of a folder that are checked


def summary(folder: Path, expression: str | None = None) -> dict[str, Any]:
    """Describe a folder as plain data.

    Args:
        folder: A folder of shards, of a benchmark's datasets, of one dataset, or of such folders.
        expression: A filter of shards.

    Raises:
        FileNotFoundError: The folder contains no data.
        ValueError: An invalid filter, or damaged data.
    """
    if any(folder.glob("*.tar")) or not folder.is_dir():
        return _shards(folder, expression)
    about: dict[str, Any] = {"folder": str(folder), "bytes": _bytes(folder)}
    if (folder / "test" / "nshards.txt").exists():
        datasets = [found for found in datasets_in(folder.parent) if found[0].name == folder.name]
    else:
        datasets = list(datasets_in(folder))
    if datasets:
        return about | {"datasets": [_dataset(*each) for each in datasets]}
    parts = [path for path in sorted(folder.iterdir()) if path.is_dir() and shard_files(path, _DATA)]
    if not parts:
        return _shards(folder, expression)  # raises the error about missing files
    return about | {"parts": [summary(part, expression) for part in parts]}


def _bytes(folder: Path) -> int:
    """Return the size of a folder's tars and tables."""
    return sum(stat.st_size for _, stat in shard_files(folder, (".tar", ".parquet", ".txt", ".json")))


def _dataset(path: Path, name: str, for_retrieval: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"folder": str(path), "name": name}
    if for_retrieval:
        pairs = retrieval(path, _SIDE)
        return about | {"kind": "retrieval", "images": len(pairs.images), "captions": len(pairs.captions)}
    labeled = classification(path, _SIDE)
    return about | {
        "kind": "classification",
        "images": len(labeled.images),
        "train_images": len(labeled.train_images),
        "classes": len(labeled.class_names),
        "templates": list(labeled.templates),
    }


def _shards(folder: Path, expression: str | None) -> dict[str, Any]:
    source = ShardSource(folder)
    index, decoded = source.index, ensure_decoded(source, _SIDE, _MOST_DECODED * _SIDE * _SIDE * 3)
    is_whole = np.ones(len(source), bool) if decoded is None else decoded.whole
    whole, undecodable = np.flatnonzero(is_whole), np.flatnonzero(~is_whole)
    kept = np.intersect1d(select(folder, expression), whole)
    columns = metadata_columns(folder)
    about: dict[str, Any] = {
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
        about |= {"filter": expression, "kept": len(kept), "without_metadata": without_metadata(index)}
    for column in set(_COUNTED) & set(columns):
        values = load_metadata(folder, [column])[column]
        before, after = (Counter(str(values[i]) for i in examples) for examples in (whole, kept))
        about[column] = {
            value: {"examples": count} | ({} if expression is None else {"kept": after[value]})
            for value, count in before.most_common(_MOST_VALUES)
        }
    spread = kept[np.linspace(0, len(kept) - 1, min(_SAMPLES, len(kept))).astype(np.int64)]
    return about | {"captions": source.captions(spread)}


# ---- text


def lines(summary: dict[str, Any]) -> Iterator[Block]:
    """Write a summary for people."""
    folder, size = summary["folder"], f"{summary['bytes'] / 1e6:,.1f}"
    if "parts" in summary:
        yield f"{folder}: {counted(len(summary['parts']), 'folder')} of data, {size} MB"
        rows = [
            (Path(part["folder"]).name, _in_short(part), f"{part['bytes'] / 1e6:,.1f}")
            for part in summary["parts"]
        ]
        yield table(("", "content", "MB"), rows, right=(2,))
    elif "datasets" in summary:
        yield f"{folder}: benchmark of {counted(len(summary['datasets']), 'dataset')}, {size} MB"
        rows = [(each["name"], each["kind"], _size_of(each)) for each in summary["datasets"]]
        yield table(("dataset", "kind", "content"), rows)
    else:
        yield f"{folder}: {summary['examples']:,} examples in {_tars(summary)}, {size} MB"
        yield from _shard_lines(summary)


def _tars(summary: dict[str, Any]) -> str:
    return counted(summary["shards"], "tar shard")


def _in_short(part: dict[str, Any]) -> str:
    if "parts" in part:
        return f"{counted(len(part['parts']), 'folder')} of data"
    if "datasets" in part:
        return "benchmark: " + "; ".join(f"{each['name']} {_size_of(each)}" for each in part["datasets"])
    damaged = f", {sum(part['damaged'].values()):,} skipped" if part["damaged"] else ""
    return f"{part['examples']:,} pairs in {_tars(part)}{damaged}"


def _size_of(dataset: dict[str, Any]) -> str:
    if dataset["kind"] == "retrieval":
        return f"{dataset['images']:,} images, {dataset['captions']:,} captions"
    return (
        f"{dataset['images']:,} images of {dataset['classes']:,} classes, "
        f"{dataset['train_images']:,} training images"
    )


def _shard_lines(summary: dict[str, Any]) -> Iterator[Block]:
    examples, is_filtered = summary["examples"], "filter" in summary
    for reason, count in summary["damaged"].items():
        yield f"  skipped: {count:,} × {reason}"
    yield from (f"    {one_line(place)}" for place in summary["damaged_at"])
    if len(summary["members"]) > 1:
        yield f"  members: {', '.join(f'{count:,} {kind}' for kind, count in summary['members'].items())}"
    for column in (each for each in _COUNTED if each in summary):
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
    yield from (f"  {one_line(caption)}" for caption in summary["captions"])
