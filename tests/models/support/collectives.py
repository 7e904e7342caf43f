"""The messages between devices of a compiled program, and which of them may be sent at the same time."""

import itertools
import re

MESSAGES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_OPERATION = re.compile(r"\s([a-z][a-z\-]*)\(")


def messages(text: str) -> list[tuple[str, str, bool]]:
    """Return pairs of messages, or of loops with messages, of each computation.

    Args:
        text: HLO after compilation.

    Returns:
        Of each pair its names, and whether one waits for the other.
    """
    computations: dict[str, dict[str, tuple[str, list[str]]]] = {}
    current: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        if not line.startswith(" ") and (found := _COMPUTATION.match(line)):
            current = computations.setdefault(found[1], {})
        elif found := _INSTRUCTION.match(line):
            operation = _OPERATION.search(" " + found[2])
            current[found[1]] = (operation[1] if operation else "", re.findall(r"%([\w.\-]+)", found[2]))

    def sends(instruction: tuple[str, list[str]]) -> bool:
        operation, names = instruction
        return operation.removesuffix("-start") in MESSAGES or any(
            sends(inner) for name in names for inner in computations.get(name, {}).values()
        )

    pairs = []
    for instructions in computations.values():
        senders = [name for name, instruction in instructions.items() if sends(instruction)]
        for one, other in itertools.combinations(senders, 2):
            waits = one in before(other, instructions) or other in before(one, instructions)
            pairs.append((one, other, waits))
    return pairs


def before(name: str, instructions: dict[str, tuple[str, list[str]]]) -> set[str]:
    """Return the instructions that an instruction waits for."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for operand in instructions[waiting.pop()][1]:
            if operand in instructions and operand not in found:
                found.add(operand)
                waiting.append(operand)
    return found
