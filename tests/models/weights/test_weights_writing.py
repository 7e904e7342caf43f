"""Writing: whole or not at all, over nothing that is not weights."""

from typing import Any

import pytest

from jestlab.models.weights.sources import open_weights, read_tokenizer, write


def test_nothing_is_replaced_unasked(tmp_path, make_weights, towers):
    weights, other = make_weights(towers), make_weights(towers, seed=1)
    for form, name in (("big_vision", "w.npz"), ("huggingface", "hf"), ("jestlab", "own")):
        place = tmp_path / name
        write(weights, place, form)
        before = open_weights(place).digest()
        with pytest.raises(ValueError, match=f"{name}: already exists: .* --force"):
            write(other, place, form)
        assert open_weights(place).digest() == before
        write(other, place, form, force=True)
        assert open_weights(place).digest() == other.digest() != before
    assert not list(tmp_path.glob(".*part"))


def test_force_replaces_weights_only(tmp_path, make_weights, towers):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    weights = make_weights(towers)
    with pytest.raises(ValueError, match=r"thesis: already exists, with other content"):
        write(weights, tmp_path / "thesis", "jestlab", force=True)
    with pytest.raises(ValueError, match=r"give a name that ends in .npz"):
        write(weights, tmp_path / "thesis", "big_vision", force=True)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match=r"folder.npz: already exists, with other content"):
        write(weights, tmp_path / "folder.npz", "big_vision", force=True)
    (tmp_path / "file").write_text("a file")
    with pytest.raises(ValueError, match="file: already exists, with other content"):
        write(weights, tmp_path / "file", "huggingface", force=True)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"


def test_an_old_tokenizer_does_not_stay(tmp_path, make_weights, towers, pieces):
    place = tmp_path / "own"
    write(make_weights(towers), place, "jestlab", tokenizer=pieces)
    assert open_weights(place).tokenizer == place / "tokenizer.model"
    write(make_weights(towers), place, "jestlab", force=True)
    assert open_weights(place).tokenizer is None


def test_a_failed_write_leaves_nothing(tmp_path, make_weights, towers, monkeypatch):
    write(make_weights(towers), tmp_path / "own", "jestlab")
    before = open_weights(tmp_path / "own").digest()
    bad: Any = "no bytes"  # fails after the tensors are written
    for force, name in ((True, "own"), (False, "new")):
        with pytest.raises(TypeError):
            write(make_weights(towers, seed=1), tmp_path / name, "jestlab", tokenizer=bad, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert open_weights(tmp_path / "own").digest() == before


def test_the_same_weights_give_the_same_bytes(tmp_path, make_weights, towers):
    for form, name in (("big_vision", "{}.npz"), ("huggingface", "{}"), ("jestlab", "{}")):
        for copy in "ab":
            write(make_weights(towers), tmp_path / name.format(form + copy), form)
    for first in tmp_path.rglob("*"):
        second = tmp_path / str(first.relative_to(tmp_path)).replace("a/", "b/").replace("a.npz", "b.npz")
        assert not first.is_file() or first.read_bytes() == second.read_bytes()


class TestTokenizers:
    def test_fits_if_every_piece_has_an_embedding(self, tmp_path, towers, pieces):
        (tmp_path / "spiece.model").write_bytes(pieces)
        assert read_tokenizer(tmp_path / "spiece.model", towers) == pieces
        few = towers.model_copy(update={"text": towers.text.model_copy(update={"vocabulary_size": 5})})
        with pytest.raises(ValueError, match=r"has \d+ pieces, but the text tower has 5 embeddings"):
            read_tokenizer(tmp_path / "spiece.model", few)
        (tmp_path / "spiece.model").write_bytes(b"not a model")
        with pytest.raises(ValueError, match=r"spiece.model: not a sentencepiece model"):
            read_tokenizer(tmp_path / "spiece.model", towers)
        with pytest.raises(FileNotFoundError, match="no such tokenizer"):
            read_tokenizer(tmp_path / "nowhere.model", towers)

    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            ({"pad_id": 3, "eos_id": 1, "bos_id": 2, "unk_id": 0}, r"pads with 3, should be 0"),
            ({"pad_id": 1, "eos_id": 0, "bos_id": -1, "unk_id": 2}, r"end piece is 0, should be 1"),
        ],
    )
    def test_other_special_pieces(self, tmp_path, towers, ids, message):
        """Those of neither SigLIP nor Gemma."""
        import sentencepiece

        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a red circle", "a blue square"]),
            model_prefix=str(tmp_path / "other"),
            vocab_size=24,
            hard_vocab_limit=False,
            minloglevel=2,
            **ids,
        )
        with pytest.raises(ValueError, match=message):
            read_tokenizer(tmp_path / "other.model", towers)
