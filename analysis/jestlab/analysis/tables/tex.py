"""Texts in LaTeX: how each character is written, and how wide it is in Computer Modern.

Widths are those of cmr10, in thousandths of its size; a test has LaTeX measure the same. Times, which many
styles of conferences use, is narrower in all but its digits, which are as wide.
"""

from __future__ import annotations

import unicodedata

_WRITTEN = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↔": r"$\leftrightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "√": r"$\surd$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "δ": r"$\delta$",
    "ε": r"$\epsilon$",
    "η": r"$\eta$",
    "θ": r"$\theta$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "µ": r"$\mu$",
    "π": r"$\pi$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "φ": r"$\phi$",
    "ω": r"$\omega$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "○": r"$\circ$",
    "•": r"$\bullet$",
    "\n": " ",
    "ß": r"{\ss}",
    "æ": r"{\ae}",
    "Æ": r"{\AE}",
    "œ": r"{\oe}",
    "Œ": r"{\OE}",
    "ø": r"{\o}",
    "Ø": r"{\O}",
    "ł": r"{\l}",
    "Ł": r"{\L}",
    "å": r"{\aa}",
    "Å": r"{\AA}",
    "ı": r"{\i}",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
    "§": r"{\S}",
    "·": r"$\cdot$",
    "°": r"$^\circ$",
    **{digit: f"$_{place}$" for place, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    **{digit: f"$^{place}$" for place, digit in zip((0, 1, 2, 3, 4, 5), "⁰¹²³⁴⁵", strict=True)},
}

_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip

_WIDTHS = {
    letter: width
    for width, letters in {
        278: "!'’‘,.:;[]`il|ı·",
        306: "fjł",
        333: " -",
        361: "I",
        370: "_",
        389: "()t",
        392: "r",
        394: "s",
        400: "°₀₁₂₃₄₅₆₇₈₉⁰¹²³⁴⁵",
        444: "cez†‡",
        472: "?",
        500: '"$*/0123456789ago“”–~^{}\\↑↓○•√§ßøåδκτε',
        528: "kqvxyρ",
        556: "Sbdhnpuγηθ",
        600: "βλμµπφ",
        625: "LŁ",
        640: "ασω",
        653: "F",
        681: "EP",
        708: "B",
        722: "CTwæœ",
        736: "R",
        750: "AHNUVXYÅ",
        764: "D",
        778: "&+=@KOQ±×−≥≤≠≈<>✗Ø",
        785: "G",
        833: "#%mΔ✓",
        903: "Æ",
        917: "M",
        1000: "—∞→←↔",
        1028: "WŒ",
        1170: "…",
    }.items()
    for letter in letters
} | {"J": 514, "Z": 611}

_BOLD = 1.17  # cmbx10 is at most so much wider than cmr10

_SHAPES = {10: 1.0, 9: 1.028, 8: 1.0625, 7: 1.14, 6: 1.23}
"""Size in points → how much wider letters are cut at it, in relation to their size."""


def escape(text: str, breaks: bool = False) -> str:
    """Write a text in LaTeX; a character that LaTeX cannot print is named by its number.

    Args:
        text: Of any characters.
        breaks: Whether a line may end within a long word, after one of its slashes and underscores.
    """
    written = "".join(map(_letter, text))
    if breaks:
        for sign in ("/", r"\_"):
            written = written.replace(sign, rf"{sign}\allowbreak{{}}")
    return written


def width(text: str, size: int, bold: bool = False) -> float:
    """Return the width of a text on one line, in points.

    Args:
        text: As for `escape`.
        size: Of its letters, in points: 10, 9, 8, 7 or 6.
        bold: Whether it is set in bold.
    """
    thousandths = sum(_width(character) for character in text)
    return thousandths / 1000 * size * _SHAPES[size] * (_BOLD if bold else 1.0)


def _letter(character: str) -> str:
    known = _WRITTEN.get(character)
    if known is not None:
        return known
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[1] in _ACCENTS and parts[0].isascii():
        return f"\\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return f"[U+{ord(character):04X}]"


def _width(character: str) -> float:
    if character in _WIDTHS:
        return _WIDTHS[character]
    base = unicodedata.normalize("NFD", character)[0]
    if base != character and base in _WIDTHS:
        return _WIDTHS[base]
    return 500 if character.isascii() else sum(map(_width, _letter(character)))
