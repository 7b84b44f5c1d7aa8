"""Messages of the wire protocol: AlterConfigs, DescribeConfigs, IncrementalAlterConfigs, ListConfigResources. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class AlterConfigsRequestAlterableConfig(Struct, kw_only=True):
    """Struct AlterableConfig of AlterConfigsRequest."""

    name: str = ""
    value: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterConfigsRequestAlterableConfig:
        """Read one of version `v`."""
        m = AlterConfigsRequestAlterableConfig()
        m.name = r.string()
        m.value = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.nullable_string(self.value)
        w.end_struct()


class AlterConfigsRequestResource(Struct, kw_only=True):
    """Struct AlterConfigsResource of AlterConfigsRequest."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterConfigsRequestAlterableConfig] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterConfigsRequestResource:
        """Read one of version `v`."""
        m = AlterConfigsRequestResource()
        m.resource_type = r.int8()
        m.resource_name = r.string()
        m.configs = [AlterConfigsRequestAlterableConfig.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int8(self.resource_type)
        w.string(self.resource_name)
        for configs_item in w.array(self.configs):
            configs_item.write(w, v)
        w.end_struct()


class AlterConfigsRequest(Struct, kw_only=True):
    """Message of API 33: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 33

    resources: list[AlterConfigsRequestResource] = field(default_factory=list)
    validate_only: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterConfigsRequest:
        """Read one of version `v`."""
        m = AlterConfigsRequest()
        m.resources = [AlterConfigsRequestResource.read(r, v) for _ in range(r.count())]
        m.validate_only = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for resources_item in w.array(self.resources):
            resources_item.write(w, v)
        w.boolean(self.validate_only)
        w.end_struct()


class AlterConfigsResponseResourceResponse(Struct, kw_only=True):
    """Struct AlterConfigsResourceResponse of AlterConfigsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterConfigsResponseResourceResponse:
        """Read one of version `v`."""
        m = AlterConfigsResponseResourceResponse()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.resource_type = r.int8()
        m.resource_name = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.int8(self.resource_type)
        w.string(self.resource_name)
        w.end_struct()


class AlterConfigsResponse(Struct, kw_only=True):
    """Message of API 33: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 33

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponseResourceResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterConfigsResponse:
        """Read one of version `v`."""
        m = AlterConfigsResponse()
        m.throttle_time_ms = r.int32()
        m.responses = [AlterConfigsResponseResourceResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for responses_item in w.array(self.responses):
            responses_item.write(w, v)
        w.end_struct()


class DescribeConfigsRequestResource(Struct, kw_only=True):
    """Struct DescribeConfigsResource of DescribeConfigsRequest."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeConfigsRequestResource:
        """Read one of version `v`."""
        m = DescribeConfigsRequestResource()
        m.resource_type = r.int8()
        m.resource_name = r.string()
        n = r.nullable_count()
        m.configuration_keys = None if n is None else [r.string() for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int8(self.resource_type)
        w.string(self.resource_name)
        for configuration_keys_item in w.nullable_array(self.configuration_keys):
            w.string(configuration_keys_item)
        w.end_struct()


class DescribeConfigsRequest(Struct, kw_only=True):
    """Message of API 32: versions 1 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 32

    resources: list[DescribeConfigsRequestResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeConfigsRequest:
        """Read one of version `v`."""
        m = DescribeConfigsRequest()
        m.resources = [DescribeConfigsRequestResource.read(r, v) for _ in range(r.count())]
        m.include_synonyms = r.boolean()
        if v >= 3:
            m.include_documentation = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for resources_item in w.array(self.resources):
            resources_item.write(w, v)
        w.boolean(self.include_synonyms)
        if v >= 3:
            w.boolean(self.include_documentation)
        w.end_struct()


class DescribeConfigsResponseSynonym(Struct, kw_only=True):
    """Struct DescribeConfigsSynonym of DescribeConfigsResponse."""

    name: str = ""
    value: str | None = ""
    source: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeConfigsResponseSynonym:
        """Read one of version `v`."""
        m = DescribeConfigsResponseSynonym()
        m.name = r.string()
        m.value = r.nullable_string()
        m.source = r.int8()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.nullable_string(self.value)
        w.int8(self.source)
        w.end_struct()


class DescribeConfigsResponseResourceResult(Struct, kw_only=True):
    """Struct DescribeConfigsResourceResult of DescribeConfigsResponse."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsResponseSynonym] = field(default_factory=list)
    config_type: int = 0
    documentation: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeConfigsResponseResourceResult:
        """Read one of version `v`."""
        m = DescribeConfigsResponseResourceResult()
        m.name = r.string()
        m.value = r.nullable_string()
        m.read_only = r.boolean()
        m.config_source = r.int8()
        m.is_sensitive = r.boolean()
        m.synonyms = [DescribeConfigsResponseSynonym.read(r, v) for _ in range(r.count())]
        if v >= 3:
            m.config_type = r.int8()
            m.documentation = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.nullable_string(self.value)
        w.boolean(self.read_only)
        w.int8(self.config_source)
        w.boolean(self.is_sensitive)
        for synonyms_item in w.array(self.synonyms):
            synonyms_item.write(w, v)
        if v >= 3:
            w.int8(self.config_type)
            w.nullable_string(self.documentation)
        w.end_struct()


class DescribeConfigsResponseResult(Struct, kw_only=True):
    """Struct DescribeConfigsResult of DescribeConfigsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResponseResourceResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeConfigsResponseResult:
        """Read one of version `v`."""
        m = DescribeConfigsResponseResult()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.resource_type = r.int8()
        m.resource_name = r.string()
        m.configs = [DescribeConfigsResponseResourceResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.int8(self.resource_type)
        w.string(self.resource_name)
        for configs_item in w.array(self.configs):
            configs_item.write(w, v)
        w.end_struct()


class DescribeConfigsResponse(Struct, kw_only=True):
    """Message of API 32: versions 1 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 32

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponseResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeConfigsResponse:
        """Read one of version `v`."""
        m = DescribeConfigsResponse()
        m.throttle_time_ms = r.int32()
        m.results = [DescribeConfigsResponseResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for results_item in w.array(self.results):
            results_item.write(w, v)
        w.end_struct()


class IncrementalAlterConfigsRequestAlterableConfig(Struct, kw_only=True):
    """Struct AlterableConfig of IncrementalAlterConfigsRequest."""

    name: str = ""
    config_operation: int = 0
    value: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> IncrementalAlterConfigsRequestAlterableConfig:
        """Read one of version `v`."""
        m = IncrementalAlterConfigsRequestAlterableConfig()
        m.name = r.string()
        m.config_operation = r.int8()
        m.value = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.int8(self.config_operation)
        w.nullable_string(self.value)
        w.end_struct()


class IncrementalAlterConfigsRequestAlterConfigsResource(Struct, kw_only=True):
    """Struct AlterConfigsResource of IncrementalAlterConfigsRequest."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[IncrementalAlterConfigsRequestAlterableConfig] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> IncrementalAlterConfigsRequestAlterConfigsResource:
        """Read one of version `v`."""
        m = IncrementalAlterConfigsRequestAlterConfigsResource()
        m.resource_type = r.int8()
        m.resource_name = r.string()
        m.configs = [IncrementalAlterConfigsRequestAlterableConfig.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int8(self.resource_type)
        w.string(self.resource_name)
        for configs_item in w.array(self.configs):
            configs_item.write(w, v)
        w.end_struct()


class IncrementalAlterConfigsRequest(Struct, kw_only=True):
    """Message of API 44: versions 0 to 1, flexible from 1."""

    API_KEY: ClassVar[int] = 44

    resources: list[IncrementalAlterConfigsRequestAlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> IncrementalAlterConfigsRequest:
        """Read one of version `v`."""
        m = IncrementalAlterConfigsRequest()
        m.resources = [IncrementalAlterConfigsRequestAlterConfigsResource.read(r, v) for _ in range(r.count())]
        m.validate_only = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for resources_item in w.array(self.resources):
            resources_item.write(w, v)
        w.boolean(self.validate_only)
        w.end_struct()


class IncrementalAlterConfigsResponseAlterConfigsResourceResponse(Struct, kw_only=True):
    """Struct AlterConfigsResourceResponse of IncrementalAlterConfigsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> IncrementalAlterConfigsResponseAlterConfigsResourceResponse:
        """Read one of version `v`."""
        m = IncrementalAlterConfigsResponseAlterConfigsResourceResponse()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.resource_type = r.int8()
        m.resource_name = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.int8(self.resource_type)
        w.string(self.resource_name)
        w.end_struct()


class IncrementalAlterConfigsResponse(Struct, kw_only=True):
    """Message of API 44: versions 0 to 1, flexible from 1."""

    API_KEY: ClassVar[int] = 44

    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponseAlterConfigsResourceResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> IncrementalAlterConfigsResponse:
        """Read one of version `v`."""
        m = IncrementalAlterConfigsResponse()
        m.throttle_time_ms = r.int32()
        m.responses = [IncrementalAlterConfigsResponseAlterConfigsResourceResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for responses_item in w.array(self.responses):
            responses_item.write(w, v)
        w.end_struct()


class ListConfigResourcesRequest(Struct, kw_only=True):
    """Message of API 74: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 74

    resource_types: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListConfigResourcesRequest:
        """Read one of version `v`."""
        m = ListConfigResourcesRequest()
        if v >= 1:
            m.resource_types = [r.int8() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            for resource_types_item in w.array(self.resource_types):
                w.int8(resource_types_item)
        w.end_struct()


class ListConfigResourcesResponseConfigResource(Struct, kw_only=True):
    """Struct ConfigResource of ListConfigResourcesResponse."""

    resource_name: str = ""
    resource_type: int = 16

    @classmethod
    def read(cls, r: Reader, v: int) -> ListConfigResourcesResponseConfigResource:
        """Read one of version `v`."""
        m = ListConfigResourcesResponseConfigResource()
        m.resource_name = r.string()
        if v >= 1:
            m.resource_type = r.int8()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.resource_name)
        if v >= 1:
            w.int8(self.resource_type)
        w.end_struct()


class ListConfigResourcesResponse(Struct, kw_only=True):
    """Message of API 74: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 74

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ListConfigResourcesResponseConfigResource] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListConfigResourcesResponse:
        """Read one of version `v`."""
        m = ListConfigResourcesResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.config_resources = [ListConfigResourcesResponseConfigResource.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        for config_resources_item in w.array(self.config_resources):
            config_resources_item.write(w, v)
        w.end_struct()
