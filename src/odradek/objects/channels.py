"""The channels of a store: made, found, changed and deleted, with no broker."""

from __future__ import annotations

from itertools import islice

from odradek.model import topic_name_problem
from odradek.objects import keys
from odradek.objects.errors import ChannelMissingError, DamagedObjectError, ObjectExistsError, ObjectMissingError
from odradek.objects.spec import ChannelSpec
from odradek.objects.stores import PAGE_KEYS, ObjectStore


def create_channel(store: ObjectStore, spec: ChannelSpec) -> None:
    """Make a channel; ObjectExistsError when there is another one of its name."""
    try:
        store.put(keys.spec_key(spec.name), spec.to_json(), only_new=True)
    except ObjectExistsError:
        if load_channel(store, spec.name).id != spec.id:  # the same id: an answer of the store was lost on its way
            raise ObjectExistsError(
                f"{store.url}: there is a channel {spec.name} already; choose another name"
            ) from None


def save_channel(store: ObjectStore, spec: ChannelSpec) -> None:
    """Write the rules of a channel anew; its window and its slice must be those that it was made with."""
    store.put(keys.spec_key(spec.name), spec.to_json())


def load_channel(store: ObjectStore, name: str) -> ChannelSpec:
    """The rules of a channel; ChannelMissingError."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise ChannelMissingError(f"{store.url}: there is no channel {name!r}: {problem}")
    try:
        return ChannelSpec.from_json(store.get(keys.spec_key(name)))
    except ObjectMissingError:
        raise ChannelMissingError(
            f"{store.url}: there is no channel {name}; 'odradek channel list --store {store.url}' shows those that are"
        ) from None
    except ValueError as error:
        raise DamagedObjectError(f"{store.url}: {keys.spec_key(name)} cannot be read: {error}") from None


def list_channels(store: ObjectStore) -> list[str]:
    """The names of all channels of a store."""
    return [name for name in store.folders("") if topic_name_problem(name) is None and _is_channel(store, name)]


def delete_channel(store: ObjectStore, name: str, channel_id: str | None = None) -> int:
    """Delete a channel and all its objects, and say how many; the spec goes last, so that one may try again.

    With an id only while the channel of this name has it: another may have deleted it too, and made a new one.
    """
    spec = keys.spec_key(name)
    others = (info.key for info in store.list(keys.channel_prefix(name)) if info.key != spec)
    count = 0
    while True:
        # Listed first, then looked at: a new channel has its spec before its objects, so none of these is one of them.
        batch = list(islice(others, PAGE_KEYS))
        if channel_id is not None and not _has_id(store, name, channel_id):
            return count
        if not batch:
            return count + store.delete([spec])
        count += store.delete(batch)


def _has_id(store: ObjectStore, name: str, channel_id: str) -> bool:
    try:
        return load_channel(store, name).id == channel_id
    except ChannelMissingError:
        return False


def _is_channel(store: ObjectStore, name: str) -> bool:
    spec = keys.spec_key(name)
    first = next(store.list(keys.channel_prefix(name), after=spec[:-1]), None)
    return first is not None and first.key == spec
