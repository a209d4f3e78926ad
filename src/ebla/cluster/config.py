"""The options of a node process: flags, then the environment (`EBLA_NODE_<NAME>`), then a TOML file, in this order."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ebla.base.addresses import has_password
from ebla.base.settings import Settings
from ebla.catalog import job_tables
from ebla.catalog.store import is_postgres
from ebla.cluster.private_files import exposed
from ebla.errors import EblaError, UsageError
from ebla.server.listener import Address
from ebla.server.options import Limits
from ebla.spark.session import NO_SPARK

PREFIX = "EBLA_NODE_"

DEFAULTS: Mapping[str, object] = {"leader_lease_s": 3.0, "runner_lease_s": 6.0}
"""Settings that differ in a node: others follow sooner."""


class NodeConfig(BaseSettings):
    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix=PREFIX)

    catalog: str = Field(description="The address of the catalog: postgresql://…")
    name: str = Field(min_length=1, description="The name of this node.")
    root: str = Field(min_length=1, description="Where this node's runs lie.")
    local_root: bool = Field(False, description="Only this machine reaches the root; others fetch runs over HTTP.")
    listen: str = Field("127.0.0.1:7601", description="Where the API is served: HOST:PORT.")
    found: str | None = Field(None, min_length=1, description="Found a cluster of this name with this node.")
    cluster: str | None = Field(None, min_length=1, description="The cluster to join; no other is accepted.")
    replaces: str | None = Field(None, description="The dead node in whose place this one comes.")
    datacenter: str = Field("dc1", description="Where the node stands.")
    rack: str = Field("rack1", description="Copies go to different racks.")
    shards: int | None = Field(None, ge=1, description="Shards of the node; default: its cores.")
    spark_master: str = Field("local[*]", description="local[N], spark://HOST:PORT, or none.")
    tls_cert: str | None = Field(None, description="The certificate of the API, a PEM file.")
    tls_key: str | None = Field(None, description="Its key, a PEM file.")
    tls_ca: str | None = Field(None, description="Verifies the certificates of other nodes; default: the system's.")
    secret: str | None = Field(
        None, min_length=16, description="What nodes prove to each other that they belong together with."
    )
    insecure: bool = Field(
        False,
        description="Listen beyond this machine without TLS or without users; take secrets of files that others read.",
    )
    users: bool = Field(True, description="Ask clients for tokens; without, every client is an administrator.")
    load_from: list[str] = Field(default_factory=list, description="LOAD reads files below these directories alone.")
    log_format: Literal["text", "json"] = Field("text", description="How log lines look.")
    limits: Limits = Field(Limits(), description="What the API takes of a client; see the reference of HTTP.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Settings of connect().")

    @property
    def address(self) -> Address:
        return Address.of(self.listen, tls_cert=self.tls_cert, tls_key=self.tls_key)

    @property
    def has_spark(self) -> bool:
        return self.spark_master != NO_SPARK

    def connect_settings(self) -> dict[str, Any]:
        """What the node's process opens its catalog with."""
        given: dict[str, Any] = {**DEFAULTS, **self.settings}
        given |= {"node": self.name, "storage_root": self.root, "local_root": self.local_root}
        given |= {"datacenter": self.datacenter, "rack": self.rack}
        given["address"] = f"{'https' if self.address.has_tls else 'http'}://{self.listen}"
        if self.shards is not None:
            given["shards"] = self.shards
        if self.replaces is not None:
            given["replaces"] = {self.name: self.replaces}
        given["spark_master"] = self.spark_master
        return given


def load(file: Path | None, flags: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> NodeConfig:
    """The configuration of a node; all mistakes in it are said at once."""
    mistakes = list[str]()
    said: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    variables = _Variables(NodeConfig, environment, mistakes)
    of_file = _File(NodeConfig, file, mistakes)

    class Sourced(NodeConfig):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, variables, of_file

    config: NodeConfig | None = None
    try:
        config = Sourced(**said)
    except ValidationError as error:
        mistakes += [_said(one) for one in error.errors()]
    given = of_file.merged
    mistakes += _of_settings(given.get("settings", {}))
    if not _is_insecure(given):
        mistakes += _exposed(file, of_file.values, given)
    if config is not None:
        mistakes += _wrong(config)
    if mistakes or config is None:
        raise UsageError("node: " + "; ".join(mistakes))
    return config


class _Variables(EnvSettingsSource):
    """`EBLA_NODE_<NAME>` of an environment. `settings` have variables of their own, `EBLA_<NAME>`."""

    def __init__(self, settings_cls: type[BaseSettings], environment: Mapping[str, str], mistakes: list[str]) -> None:
        super().__init__(settings_cls, case_sensitive=True, env_prefix="")
        names = {name: PREFIX + name.upper() for name in settings_cls.model_fields if name != "settings"}
        self.env_vars = {name: environment[said] for name, said in names.items() if said in environment}
        self._mistakes = mistakes

    def prepare_field_value(self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool) -> Any:
        if field_name == "load_from" and value is not None:
            return value.split(os.pathsep)
        try:
            return super().prepare_field_value(field_name, field, value, value_is_complex)
        except ValueError:
            self._mistakes.append(f"{field_name}: expected a JSON object, found {value!r}")
            return None

    def __call__(self) -> dict[str, Any]:
        return _unsaid(super().__call__(), self)


class _File(PydanticBaseSettingsSource):
    """A TOML file, the last source. One that cannot be read is a mistake among others."""

    def __init__(self, settings_cls: type[BaseSettings], file: Path | None, mistakes: list[str]) -> None:
        super().__init__(settings_cls)
        self.values: dict[str, Any] = {}
        self.merged: dict[str, Any] = {}
        """What all sources say, as they say it."""
        try:
            self.values = {} if file is None else tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            mistakes.append(f"config: expected a TOML file, found {file}: {error}")

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        mine = _unsaid(self.values, self)
        self.merged = {**mine, **self.current_state}
        return mine


def _unsaid(found: Mapping[str, Any], source: PydanticBaseSettingsSource) -> dict[str, Any]:
    """What no source before this one said; otherwise tables of both would be mixed."""
    return {name: value for name, value in found.items() if name not in source.current_state}


def _is_insecure(given: Mapping[str, Any]) -> bool:
    try:
        return TypeAdapter(bool).validate_python(given.get("insecure", False))
    except ValidationError:
        return False


def _exposed(file: Path | None, of_file: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Files with secrets that other users of the machine can read."""
    found = list[str]()
    secrets = [name for name in ("catalog", "secret") if _is_secret(name, of_file.get(name))]
    if file is not None and secrets and (wrong := exposed(file, f"it has the {' and the '.join(secrets)}")):
        found.append(f"config: {wrong}")
    key = given.get("tls_key")
    if isinstance(key, str) and (wrong := exposed(Path(key), "it is the key of the node")):
        found.append(f"tls_key: {wrong}")
    return found


def _is_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and (name == "secret" or has_password(value))


def _said(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"{name}: expected a value, found none"
    if error["type"] == "extra_forbidden":
        fields = Limits.model_fields if error["loc"][0] == "limits" else NodeConfig.model_fields
        return f"{name}: expected one of {', '.join(fields)}"
    found = "" if name in ("catalog", "secret") else f", found {error['input']!r}"
    return f"{name}: {error['msg']}{found}"


def _of_settings(given: object) -> list[str]:
    if not isinstance(given, Mapping):
        return []
    try:
        names = Settings(**{**DEFAULTS, **given}).table_names
    except ValidationError as error:
        return [
            f"settings.{'.'.join(str(part) for part in one['loc'])}: {one['msg']}, found {one['input']!r}"
            for one in error.errors()
        ]
    return [f"settings.{one}" for one in job_tables.mistakes(names)]


def _wrong(config: NodeConfig) -> list[str]:
    """What a field cannot know of itself."""
    found = list[str]()
    if not is_postgres(config.catalog):
        found.append("catalog: expected postgresql://…, which several processes can share")
    if config.found is not None and config.cluster not in (None, config.found):
        found.append(f"cluster: expected {config.found}, which `found` says, found {config.cluster}")
    try:
        _ = config.address
    except EblaError as error:
        found.append(str(error))
    if not config.spark_master.startswith(("local[", "spark://")) and config.has_spark:
        found.append(f"spark_master: expected local[N], spark://HOST:PORT or none, found {config.spark_master!r}")
    if config.local_root and config.secret is None:
        found.append("secret: expected one, with which other nodes fetch files of a local root, found none")
    if config.local_root and config.spark_master.startswith("spark://"):
        found.append("spark_master: expected local[N] or none, whose tasks reach a local root, found spark://…")
    if config.local_root and "://" in config.root:
        found.append(f"root: expected a directory of this machine for a local root, found {config.root}")
    found += [
        f"{name}: expected a file, found {path}"
        for name in ("tls_cert", "tls_key", "tls_ca")
        if (path := getattr(config, name)) is not None and not Path(path).is_file()
    ]
    found += [f"load_from: expected a directory, found {path}" for path in config.load_from if not Path(path).is_dir()]
    return found
