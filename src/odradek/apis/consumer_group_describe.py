"""ConsumerGroupDescribe (key 69): groups of the consumer protocol with what their members own and should own (KIP-848).

A classic group is unknown here, as those groups are to DescribeGroups: tools ask both.
"""

from __future__ import annotations

from odradek.apis.authorized import GROUP_OPERATIONS
from odradek.apis.context import Context
from odradek.apis.registry import Api, Versions
from odradek.groups.assignors import Partitions
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_image import Member
from odradek.groups.consumer_records import partitions_by_topic
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, PeerError
from odradek.wire.messages import consumer_group_describe as message

VERSIONS = Versions(0, 1)

_NOT_ASKED = -(2**31)
_CONSUMER_MEMBER = 1


def handle(context: Context, request: message.Request) -> message.Response:
    """Describe each group; what it may be used for is told only to those who ask."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else _NOT_ASKED
    return message.Response(groups=[_describe(context, group_id, operations) for group_id in request.group_ids])


def _describe(context: Context, group_id: str, operations: int) -> message.ResponseGroup:
    try:
        context.groups.check_served(group_id)
    except PeerError as refused:
        return message.ResponseGroup(error_code=refused.code, error_message=refused.message, group_id=group_id)
    group = context.groups.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return message.ResponseGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"There is no group {group_id} of the consumer protocol.",
            group_id=group_id,
        )
    return message.ResponseGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.image.epoch,
        assignment_epoch=group.image.target_epoch,
        assignor_name=group.assignor_name,
        members=[_member(context, member) for member in group.image.members.values()],
        authorized_operations=operations,
    )


def _member(context: Context, member: Member) -> message.ResponseMember:
    subscription = member.subscription
    return message.ResponseMember(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=member.current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        assignment=_assignment(context, member.current.assigned),
        target_assignment=_assignment(context, member.target),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(context: Context, partitions: Partitions) -> message.ResponseAssignment:
    """Tell of partitions by their topics' names too; those of a topic that is gone are left out."""
    topics: list[message.ResponseTopic] = []
    for topic_id, numbers in partitions_by_topic(partitions).items():
        name = context.groups.topics.topic_name(topic_id)
        if name is not None:
            topics.append(message.ResponseTopic(topic_id=topic_id, topic_name=name, partitions=numbers))
    return message.ResponseAssignment(topic_partitions=topics)


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, VERSIONS, message.Request, handle)
