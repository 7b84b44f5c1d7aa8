"""The configs of topics, and the few of this node and of groups: describe and alter.

Owns the protocol's forms of a config (source, type, synonyms) and the four operations of an incremental change. The
store knows names, values and defaults. From ConfigHelper, ConfigAdminManager and ConfigurationControlManager: a
resource or a config that is given twice in one request is refused, and so is a null value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from api.kafka.call import Call
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
    AlterConfigsResponseResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseConfigResource,
)
from api.kafka.refusals import code_of, message_of
from logserver.config import DEFAULT
from storage import ClientBatches, ConfigSource, StorageError, TopicConfig
from storage.errors import InvalidArgument, InvalidConfig, NotOffered

TOPIC: Final = 2
NODE: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
RESOURCE_TYPES: Final = frozenset({TOPIC, NODE, 8, CLIENT_METRICS, GROUP})
"""All types of resources that have configs: 8 is the loggers of a node."""
GROUP_CONFIGS: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
)
"""Of members in the new group protocol. With "group." before them, names of the node's configs and of settings."""
FIRST_WITH_TYPES: Final = 1
SOURCES: Final = {ConfigSource.TOPIC: 1, ConfigSource.STORE: 4, ConfigSource.DEFAULT: 5}
TYPES: Final = {"bool": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
SET, DELETE, APPEND, SUBTRACT = range(4)

_Changed = AlterConfigsRequestResource | IncrementalAlterConfigsRequestAlterConfigsResource
Config = DescribeConfigsResponseResourceResult
Synonym = DescribeConfigsResponseSynonym


def described(batches: ClientBatches, topic: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, value and source of every config of a topic."""
    for config in batches.describe_configs(topic):
        yield config.name, config.value, SOURCES[config.source]


def would_have(
    batches: ClientBatches, configs: Mapping[str, str]
) -> Iterator[tuple[str, str, int]]:
    """Yield name, value and source of every config that a topic with these configs of its own would have."""
    for config in batches.default_configs():
        own = configs.get(config.name)
        source = config.source if own is None else ConfigSource.TOPIC
        yield config.name, config.value if own is None else own, SOURCES[source]


async def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Return configs with values, types and sources; no names ask for all of a resource."""
    rows = []
    # A resource has one row, however often it is asked for.
    resources = {(one.resource_type, one.resource_name): one for one in request.resources}
    for resource in resources.values():
        row = DescribeConfigsResponseResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            configs = _configs_of(call, resource)
        except StorageError as error:
            row.error_code, row.error_message = code_of(error), message_of(error)
        else:
            names = resource.configuration_keys
            row.configs = [config for config in configs if not names or config.name in names]
            if not request.include_synonyms:
                for config in row.configs:
                    config.synonyms = []
        rows.append(row)
    return DescribeConfigsResponse(results=rows)


def _configs_of(call: Call, resource: DescribeConfigsRequestResource) -> Sequence[Config]:
    """Return the configs of a topic, node or group; "" is the node's default, which has none of its own.

    Raises UnknownTopic, InvalidTopic, InvalidArgument, NotOffered.
    """
    if resource.resource_type == NODE:
        _check_node(call, resource.resource_name)
        return list(_node_configs(call)) if resource.resource_name else []
    if resource.resource_type == GROUP:
        if not resource.resource_name:
            raise InvalidArgument("a group has a name", field="resource_name")
        return [_group_config(call, name) for name in GROUP_CONFIGS]
    if resource.resource_type != TOPIC:
        raise _without_configs(resource.resource_type)
    _check_topic(call, resource.resource_name)
    configs = call.service.batches.describe_configs(resource.resource_name)
    return [_config(config) for config in configs]


def _check_node(call: Call, name: str) -> None:
    """Raise InvalidArgument for another node."""
    if name not in {"", str(call.node_id)}:
        raise InvalidArgument(
            f"node {name!r} does not exist, only {call.node_id}", field="resource_name"
        )


def _check_topic(call: Call, name: str) -> None:
    """Raise UnknownTopic, or InvalidTopic for a name that no topic can have."""
    _check_name(call, name)
    call.topics.info(name)


def _check_name(call: Call, name: str) -> None:
    """Raise InvalidTopic for a name that no topic can have."""
    if name not in call.topics:
        call.service.batches.check_name(name)


def _without_configs(resource_type: int) -> StorageError:
    """Return the error for a resource that has no configs here, or that there is not at all."""
    if resource_type not in RESOURCE_TYPES:
        return InvalidArgument(f"unknown resource type {resource_type}", field="resource_type")
    return NotOffered(
        f"resource type {resource_type}: only topics ({TOPIC}), this node ({NODE}) and groups ({GROUP}) have configs, "
        "and only a topic's can be changed",
        feature="configs",
    )


def _group_config(call: Call, name: str) -> Config:
    """Return a config of a group: the node's, for each group the same, also for one that does not exist."""
    settings, setting = call.service.settings, _setting_of(name)
    is_default = settings.sources.get(setting, DEFAULT) == DEFAULT
    source = SOURCES[ConfigSource.DEFAULT if is_default else ConfigSource.STORE]
    value = str(getattr(settings, setting))
    return Config(
        name=name,
        value=value,
        read_only=True,
        config_source=source,
        config_type=TYPES["int"],
        synonyms=[Synonym(name=f"group.{name}", value=value, source=source)],
    )


def _setting_of(name: str) -> str:
    """Return the name of the setting that has the value of a group's config."""
    return f"group.{name}".replace(".", "_")


def _config(config: TopicConfig) -> Config:
    synonyms = []
    if config.source is ConfigSource.TOPIC:
        synonyms.append(Synonym(name=config.name, value=config.value, source=1))
    server_name = config.server_name or config.name
    of_store = config.source is ConfigSource.STORE
    synonyms.append(Synonym(name=server_name, value=config.inherited, source=4 if of_store else 5))
    return Config(
        name=config.name,
        value=config.value,
        config_source=SOURCES[config.source],
        config_type=TYPES[config.kind],
        synonyms=synonyms,
    )


def _node_configs(call: Call) -> Iterator[Config]:
    """Yield the configs of this node under the names of the real server: all read-only."""
    service = call.service
    settings = service.settings
    own = {
        "advertised.listeners": f"PLAINTEXT://{call.node}",
        "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
        "broker.id": str(call.node_id),
        "default.replication.factor": "1",
        "log.dirs": str(settings.data.absolute()),
        "max.connections": str(settings.max_connections),
        "node.id": str(call.node_id),
        "socket.request.max.bytes": str(settings.max_body_bytes),
    }
    for name in GROUP_CONFIGS:
        own[f"group.{name}"] = str(getattr(settings, _setting_of(name)))
    for config in service.batches.default_configs():
        if config.server_name is not None:
            own[config.server_name] = config.value
    for name, value in sorted(own.items()):
        yield Config(name=name, value=value, read_only=True, config_source=4, config_type=2)


async def list_config_resources(
    call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Return the resources that have configs: topics and this node."""
    types = set(request.resource_types) or {TOPIC, NODE}
    if call.version < FIRST_WITH_TYPES:  # it asks for client metrics only
        types = {CLIENT_METRICS}
    if not types <= RESOURCE_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [(name, TOPIC) for name in call.topics if TOPIC in types]
    if NODE in types:
        found.append((str(call.node_id), NODE))
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponseConfigResource(resource_name=name, resource_type=kind)
            for name, kind in found
        ]
    )


async def alter_configs(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all configs of topics of their own; durable on return."""
    rows = []
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    for resource in request.resources:
        wanted = {config.name: config.value for config in resource.configs}
        code, message = ErrorCode.INVALID_REQUEST, _odd(resource, counts)
        if message is None:
            own = _own(call, resource.resource_name)
            code, message = await _altered(
                call,
                resource.resource_type,
                resource.resource_name,
                {**dict.fromkeys(own), **wanted},
                check_only=request.validate_only,
            )
        rows.append(
            AlterConfigsResponseResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(responses=rows)


async def incremental_alter_configs(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Set, reset, extend or shorten configs of topics; durable on return."""
    rows = []
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    for resource in request.resources:
        name = resource.resource_name
        code, message = ErrorCode.INVALID_REQUEST, _odd(resource, counts)
        if message is None:
            present = _all(call, name)
            try:
                changes = {
                    changed: value
                    for changed, value in (_change(present, one) for one in resource.configs)
                    if value is not None or _is_own(present.get(changed))
                }
            except StorageError as error:
                code, message = code_of(error), message_of(error)
            else:
                code, message = await _altered(
                    call, resource.resource_type, name, changes, check_only=request.validate_only
                )
        rows.append(
            IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=rows)


def _odd(resource: _Changed, counts: Counter[tuple[int, str]]) -> str | None:
    """Return why the changes of a resource are refused before its configs are looked at; None if they are not.

    `counts`: how often each resource is in the request.
    """
    if counts[resource.resource_type, resource.resource_name] > 1:
        return "each resource must be in the request at most once"
    if resource.resource_type == TOPIC and not resource.resource_name:
        return "a topic has a name"
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        return "a config is in the request more than once"
    nulls = [
        config.name
        for config in resource.configs
        if config.value is None and getattr(config, "config_operation", SET) != DELETE
    ]
    return f"config {nulls[0]} has no value" if nulls else None


def _is_own(config: TopicConfig | None) -> bool:
    """Return whether a topic itself has a config. Nothing else can be reset: that has no effect, as on the broker."""
    return config is not None and config.source is ConfigSource.TOPIC


def _own(call: Call, topic: str) -> Sequence[str]:
    """Return the names of the configs that a topic itself has."""
    return [name for name, config in _all(call, topic).items() if _is_own(config)]


def _all(call: Call, topic: str) -> Mapping[str, TopicConfig]:
    """Return the configs of a topic by name; of one that does not exist, what it would have."""
    batches = call.service.batches
    known = batches.describe_configs(topic) if topic in call.topics else batches.default_configs()
    return {config.name: config for config in known}


def _change(
    present: Mapping[str, TopicConfig], config: IncrementalAlterConfigsRequestAlterableConfig
) -> tuple[str, str | None]:
    """Return the name and the new value of a config; None resets it. Raises InvalidConfig."""
    name, value = config.name, config.value
    if config.config_operation == DELETE or value is None:
        return name, None
    if config.config_operation == SET:
        return name, value
    known = present.get(name)
    if config.config_operation not in {APPEND, SUBTRACT} or known is None or known.kind != "list":
        raise InvalidConfig(
            f"config {name}: operation {config.config_operation} is for lists only",
            name=name,
            value=value,
        )
    items = [item for item in known.value.split(",") if item]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if config.config_operation == APPEND:
        return name, ",".join([*items, *(item for item in given if item not in items)])
    return name, ",".join(item for item in items if item not in given)


async def _altered(
    call: Call,
    resource_type: int,
    topic: str,
    changes: Mapping[str, str | None],
    *,
    check_only: bool,
) -> tuple[ErrorCode, str | None]:
    """Change, or only check, the configs of a topic. Return the number and message of the error.

    The order of the checks is that of ConfigurationControlManager: a bad config counts before an unknown topic. A
    config of a node that has none of its own is reset without an effect: kafka-reassign-partitions resets limits.
    """
    try:
        if resource_type == NODE and not any(value is not None for value in changes.values()):
            _check_node(call, topic)
            return ErrorCode.NONE, None
        if resource_type != TOPIC:
            raise _without_configs(resource_type)
        _check_name(call, topic)
        given = {name: value for name, value in changes.items() if value is not None}
        call.service.batches.check_configs(given)
        call.topics.info(topic)
        if check_only:
            call.service.topics.access.check_writable()
        elif changes:
            await call.service.topics.alter(topic, changes)
    except StorageError as error:
        return code_of(error), message_of(error)
    return ErrorCode.NONE, None
