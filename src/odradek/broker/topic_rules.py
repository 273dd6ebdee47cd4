"""Whether a topic can have the settings that somebody wants for it: what the table of settings alone cannot say."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.archive_rules import change_problem, store_problem
from odradek.broker.channel_rules import grid_problem
from odradek.broker.settings import SettingsView
from odradek.controller.image import TopicImage
from odradek.log.backends.library import library_problem
from odradek.settings_table import SettingError


def settings_problem(
    defaults: SettingsView, overrides: Mapping[str, str], topic: TopicImage | None, *, stands_alone: bool
) -> str | None:
    """Say why a topic, a new one or this one, cannot have these settings; None if it can."""
    try:
        defaults.log_config(overrides)
        settings = defaults.with_overrides(overrides)
    except SettingError as error:
        return str(error)
    problem = library_problem(settings.values["segment.backend"]) or change_problem(topic, settings.values)
    if problem is None and topic is not None:
        was = defaults.with_overrides(topic.configs).values
        problem = grid_problem(topic.name, was, settings.values)
    if problem is None and settings.values["remote.storage.enable"]:
        problem = store_problem(settings.objects_config(), stands_alone=stands_alone)
    return problem
