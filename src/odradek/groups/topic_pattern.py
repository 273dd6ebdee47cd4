"""Matches topics' names against a consumer's regular expression (KIP-848), in time linear in the name.

A pattern becomes an automaton over positions that is run as sets in an integer, never by trying and going back, so no
pattern can hold the broker up: the work of compiling and of each character has a bound. A name matches as a whole.
"""

from __future__ import annotations

from odradek.groups.topic_syntax import Choice, Edge, Node, One, PatternError, Repeat, Sequence, parse

_NODES_MAX = 8_192  # of the automaton, after repetitions are written out
_WORK_MAX = 100_000  # edges walked while the automaton is made
_STEPS_REMEMBERED = 10_000

__all__ = ["PatternError", "TopicPattern"]


class TopicPattern:
    """A compiled pattern; PatternError if the text is no pattern or needs too much work."""

    def __init__(self, text: str) -> None:
        builder = _Builder()
        start = builder.add(None)
        end = builder.add(None)  # entered without a character, so that to reach it is to have matched
        builder.link(builder.write(parse(text), start), end)
        automaton = _Automaton(builder, start, end)
        self._first = automaton.first
        self._follow = automaton.follow
        self._last = automaton.last
        self._at_character = automaton.at_character
        self._steps: dict[tuple[int, str], int] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        steps = self._steps
        states = -1  # before the first character
        for character in name:
            after = steps.get((states, character))
            if after is None:
                after = self._step(states, character)
                if len(steps) >= _STEPS_REMEMBERED:
                    steps.clear()
                steps[states, character] = after
            if not after:
                return False
            states = after
        return states > 0 and bool(states & self._last)

    def _step(self, states: int, character: str) -> int:
        reached = self._first if states < 0 else 0
        while states > 0:
            lowest = states & -states
            reached |= self._follow[lowest.bit_length() - 1]
            states ^= lowest
        return reached & self._at_character.get(character, 0)


class _Builder:
    """The pattern as a graph: nodes that consume a character, and nodes that do not."""

    def __init__(self) -> None:
        self.ones: list[frozenset[str] | None] = []  # what a node consumes on entry; None: nothing
        self.edges: list[list[tuple[int, Edge | None]]] = []  # where one can go, and on which condition
        self._written = 0

    def add(self, consumes: frozenset[str] | None) -> int:
        if len(self.ones) >= _NODES_MAX:
            raise PatternError("it is too large once its repetitions are written out")
        self.ones.append(consumes)
        self.edges.append([])
        return len(self.ones) - 1

    def link(self, start: int, end: int, condition: Edge | None = None) -> None:
        self.edges[start].append((end, condition))

    def write(self, node: Node, start: int) -> int:
        """Add what a part of the pattern means after node `start`; gives the node at its end."""
        self._written += 1
        if self._written > _NODES_MAX:
            raise PatternError("it is too large once its repetitions are written out")
        match node:
            case One(characters):
                end = self.add(characters)
                self.link(start, end)
                return end
            case Edge():
                end = self.add(None)
                self.link(start, end, node)
                return end
            case Sequence(parts):
                for part in parts:
                    start = self.write(part, start)
                return start
            case Choice(options):
                ends = [self.write(option, start) for option in options]
                end = self.add(None)
                for option_end in ends:
                    self.link(option_end, end)
                return end
            case Repeat():
                return self._write_repeat(node, start)

    def _write_repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.least):
            start = self.write(node.part, start)
        end = self.add(None)
        self.link(start, end)
        if node.most is None:
            # A node of its own to come back to: `start` may be shared with what stands before.
            self.link(self.write(node.part, end), end)
        else:
            for _ in range(node.most - node.least):
                start = self.write(node.part, start)
                self.link(start, end)
        return end


class _Automaton:
    """Sets of positions as integers: bit n stands for the nth node that consumes a character."""

    def __init__(self, builder: _Builder, start: int, end: int) -> None:
        self._builder = builder
        self._end = end
        self._work = 0
        nodes = [node for node, consumes in enumerate(builder.ones) if consumes is not None]
        self._bit = {node: 1 << number for number, node in enumerate(nodes)}
        self.first, _ = self._reach(start, is_at_start=True)
        self.follow: list[int] = []
        self.last = 0
        self.at_character: dict[str, int] = {}
        for node in nodes:
            following, can_end = self._reach(node, is_at_start=False)
            self.follow.append(following)
            self.last |= self._bit[node] if can_end else 0
            for character in builder.ones[node] or ():
                self.at_character[character] = self.at_character.get(character, 0) | self._bit[node]

    def _reach(self, node: int, *, is_at_start: bool) -> tuple[int, bool]:
        """The positions that can come next, and whether the name may end here."""
        inside = self._walk(node, is_at_start=is_at_start, is_at_end=False)
        reached = 0
        for other in inside:
            reached |= self._bit.get(other, 0)
        return reached, self._end in self._walk(node, is_at_start=is_at_start, is_at_end=True)

    def _walk(self, node: int, *, is_at_start: bool, is_at_end: bool) -> set[int]:
        """All that can be entered from a node before another character is consumed, that character's node included."""
        entered: set[int] = set()
        stack = [node]
        while stack:
            at = stack.pop()
            for other, condition in self._builder.edges[at]:
                self._work += 1
                if other in entered or not _holds(condition, is_at_start=is_at_start, is_at_end=is_at_end):
                    continue
                entered.add(other)
                if self._builder.ones[other] is None:
                    stack.append(other)
        if self._work > _WORK_MAX:
            raise PatternError("it allows too many ways at once")
        return entered


def _holds(condition: Edge | None, *, is_at_start: bool, is_at_end: bool) -> bool:
    if condition is None:
        return True
    return is_at_end if condition.is_end else is_at_start
