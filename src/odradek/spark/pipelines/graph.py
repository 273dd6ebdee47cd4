"""The order of a pipeline's transforms, and what is wrong with how its steps refer to each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.spark.pipelines.errors import Path, Problem, nearest
from odradek.spark.pipelines.model import Sink, Source, SqlTransform, TopicSink, TopicSource, Transform
from odradek.spark.pipelines.sql_inputs import tables_of


def inputs_of(transform: Transform, steps: Iterable[str]) -> list[str]:
    """The steps that a transform reads. A query may name tables of Spark's catalog, too: those are no steps."""
    if isinstance(transform, SqlTransform) and transform.inputs is None:
        known = {step.lower(): step for step in steps}
        return [known[name.lower()] for name in tables_of(transform.query) if name.lower() in known]
    return list(transform.inputs or ())


def in_order(sources: Mapping[str, Source], transforms: Mapping[str, Transform]) -> list[Transform]:
    """The transforms, each behind those that it reads, as they stand where that leaves a choice."""
    steps = [*sources, *transforms]
    waiting = dict(transforms)
    ordered: list[Transform] = []
    while waiting:
        ready = [
            name
            for name, transform in waiting.items()
            if not any(one in waiting for one in inputs_of(transform, steps))
        ]
        assert ready, "graph_problems() finds cycles before"
        ordered.append(waiting.pop(ready[0]))
    return ordered


def graph_problems(
    sources: Mapping[str, Source], transforms: Mapping[str, Transform], sinks: Mapping[str, Sink]
) -> list[Problem]:
    """References to steps that do not exist, steps that need themselves, and a pipeline that writes nothing."""
    steps = [*sources, *transforms]
    problems = []
    if not sources:
        problems.append(Problem((), "there are no sources: a table [sources.NAME] says what is read"))
    if not sinks:
        problems.append(Problem((), "there are no sinks: a table [sinks.NAME] says where rows go"))
    for name, transform in transforms.items():
        problems += _unknown(("transforms", name), inputs_of(transform, steps), steps)
    for name, sink in sinks.items():
        problems += _unknown(("sinks", name, "from"), [sink.source], steps)
    return problems or _cycles(steps, transforms) or _loops(sources, transforms, sinks)


def _unknown(path: Path, names: Iterable[str], steps: list[str]) -> list[Problem]:
    known = f"; there are {', '.join(steps)}" if steps else ""
    return [
        Problem(path, f"there is no source or transform '{name}'{nearest(name, steps) or known}")
        for name in names
        if name not in steps
    ]


def _cycles(steps: list[str], transforms: Mapping[str, Transform]) -> list[Problem]:
    inputs = {name: inputs_of(transform, steps) for name, transform in transforms.items()}
    problems = []
    told: set[str] = set()
    for name in transforms:
        circle = _way_back(name, inputs)
        if circle and name not in told:
            told |= set(circle)
            way = " -> ".join([*circle, circle[0]])
            problems.append(Problem(("transforms", name), f"this needs itself: {way} (each reads the next)"))
    return problems


def _loops(
    sources: Mapping[str, Source], transforms: Mapping[str, Transform], sinks: Mapping[str, Sink]
) -> list[Problem]:
    """Sinks that write to a topic that they read: every batch would make another."""
    problems = []
    for name, sink in sinks.items():
        for source in _sources_of(sink.source, sources, transforms) if isinstance(sink, TopicSink) else ():
            assert isinstance(sink, TopicSink)
            if isinstance(source, TopicSource) and source.bootstrap == sink.bootstrap and source.reads(sink.topic):
                message = f"the source '{source.name}' reads this topic: the pipeline would go round without end"
                problems.append(Problem(("sinks", name, "topic"), message))
    return problems


def _sources_of(step: str, sources: Mapping[str, Source], transforms: Mapping[str, Transform]) -> list[Source]:
    """All sources from which the rows of a step come."""
    if step in sources:
        return [sources[step]]
    steps = [*sources, *transforms]
    found = (_sources_of(name, sources, transforms) for name in inputs_of(transforms[step], steps))
    return list({source.name: source for many in found for source in many}.values())


def _way_back(name: str, inputs: Mapping[str, list[str]]) -> list[str]:
    """The shortest way from a transform over what it reads to itself; empty if there is none."""
    ways = [[name]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for step in inputs.get(way[-1], ()):
            if step == name:
                return way
            if step not in seen:
                seen.add(step)
                ways.append([*way, step])
    return []
