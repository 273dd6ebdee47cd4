"""Which existing topics the members of a consumer group subscribe to, by name or by regular expression (KIP-848).

Looks at the topics only when they or the subscriptions have changed. A regular expression never matches the broker's
own topics: who wants to read those names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from odradek.groups.consumer_types import Subscription, TopicFacts
from odradek.groups.group import Topics
from odradek.groups.topic_pattern import PatternError, TopicPattern

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class SubscribedTopics:
    """The topics of one group, as far as the machine has looked."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._seen_version: int | None = None  # of the topics; None: the subscriptions have changed since
        self._patterns: dict[str, TopicPattern] = {}
        self._matches: dict[str, frozenset[str]] = {}  # pattern -> the names that matched at the seen version

    def add_pattern(self, text: str) -> None:
        """Compile a regular expression that a member is about to subscribe with; PatternError if it is none."""
        if text not in self._patterns:
            self._patterns[text] = TopicPattern(text)

    def expire(self) -> None:
        """Take note that subscriptions have changed."""
        self._seen_version = None

    def refreshed(self, subscriptions: Iterable[Subscription]) -> dict[str, TopicFacts] | None:
        """What exists of all that is subscribed to, by name; None if nothing can have changed since the last look."""
        if self._seen_version == self._topics.version:
            return None
        self._seen_version = self._topics.version
        subscriptions = list(subscriptions)
        self._match([each.topic_regex for each in subscriptions if each.topic_regex is not None])
        names: set[str] = set()
        for each in subscriptions:
            names |= self.names_of(each)
        found: dict[str, TopicFacts] = {}
        counts = self._topics.partition_counts()
        for name in sorted(names):
            topic_id = self._topics.topic_id(name)
            if name in counts and topic_id is not None:
                found[name] = TopicFacts(topic_id, counts[name], self._topics.gaps(name))
        return found

    def names_of(self, subscription: Subscription) -> frozenset[str]:
        """The topics of one member, as of the last look; those named need not exist."""
        named = frozenset(subscription.topic_names)
        return named | self._matches.get(subscription.topic_regex or "", frozenset())

    def _match(self, texts: list[str]) -> None:
        for text in texts:
            # One that an earlier version of this code stored and that is no longer supported matches nothing.
            with suppress(PatternError):
                self.add_pattern(text)
        self._patterns = {text: self._patterns[text] for text in texts if text in self._patterns}
        names = [name for name in self._topics.partition_counts() if name not in INTERNAL_TOPICS]
        self._matches = {text: frozenset(filter(each.matches, names)) for text, each in self._patterns.items()}
