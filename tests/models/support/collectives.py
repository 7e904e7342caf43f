"""The messages between devices of a compiled program, and which of them may be sent at the same time."""

import re

_MESSAGE = re.compile(r"\s(all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(-start)?\(")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")


def messages(text: str) -> list[tuple[str, str, bool]]:
    """Return pairs of messages, or of loops with messages, of each computation.

    Args:
        text: HLO after compilation: operands and called computations come before their users.

    Returns:
        Of each pair its names, and whether the second waits for the first.
    """
    pairs: list[tuple[str, str, bool]] = []
    senders: dict[str, list[str]] = {}  # by computation
    current: list[str] = []
    waits_for: dict[str, set[str]] = {}  # by instruction of the current computation
    for line in text.splitlines():
        if not line.startswith(" ") and (found := _COMPUTATION.match(line)):
            current, waits_for = senders.setdefault(found[1], []), {}
        elif found := _INSTRUCTION.match(line):
            name, operands = found[1], re.findall(r"%([\w.\-]+)", found[2])
            waits_for[name] = set(operands).union(*(waits_for.get(operand, ()) for operand in operands))
            if _MESSAGE.search(" " + found[2]) or any(senders.get(operand) for operand in operands):
                pairs += [(earlier, name, earlier in waits_for[name]) for earlier in current]
                current.append(name)
    return pairs
