"""The configuration of a node: where a value comes from, and what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ebla.cluster.config import load
from ebla.cluster.local_cluster import toml
from ebla.cluster.private_files import exposed
from ebla.errors import UsageError

ENOUGH = {"catalog": "postgresql://ebla@db/ebla", "name": "n1", "root": "/data/n1"}


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path):
    file = tmp_path / "node.toml"
    file.write_text(toml({**ENOUGH, "rack": "of-file", "datacenter": "of-file", "settings": {"tablets": 8}}))
    config = load(file, {"rack": "of-flag"}, {"EBLA_NODE_RACK": "of-env", "EBLA_NODE_DATACENTER": "of-env"})
    assert (config.rack, config.datacenter, config.name) == ("of-flag", "of-env", "n1")
    settings = config.connect_settings()
    assert (settings["tablets"], settings["storage_root"], settings["leader_lease_s"]) == (8, "/data/n1", 3.0)
    assert settings["address"] == "http://127.0.0.1:7601"


def test_all_mistakes_are_said_at_once(tmp_path: Path):
    flags = {"name": "n1", "listen": "nowhere", "shards": 0, "settings": {"tablets": "many", "colour": 1}}
    with pytest.raises(UsageError) as caught:
        load(None, flags, {})
    said = str(caught.value)
    for part in (
        "catalog: expected a value",
        "root: expected a value",
        "shards:",
        "settings.tablets",
        "settings.colour",
    ):
        assert part in said
    whole = {**ENOUGH, "listen": "nowhere", "catalog": "./here", "spark_master": "yarn", "load_from": ["/no/such"]}
    with pytest.raises(UsageError) as caught:
        load(None, whole, {})
    for part in ("catalog: expected postgresql://", "listen: expected HOST:PORT", "spark_master:", "load_from:"):
        assert part in str(caught.value)


def test_a_file_says_what_the_api_takes_of_a_client(tmp_path: Path):
    file = tmp_path / "node.toml"
    file.write_text(toml(ENOUGH) + "\n[limits]\nrequests_per_s = 20\nburst = 5\n")
    limits = load(file, {}, {}).limits
    assert (limits.requests_per_s, limits.burst, limits.rows) == (20, 5, 1_000_000)
    file.write_text(toml(ENOUGH) + '\n[limits]\nrequests_per_s = 0\nrows = "many"\npace = 3\n')
    with pytest.raises(UsageError) as caught:
        load(file, {}, {})
    for part in (
        "limits.requests_per_s: ",
        "limits.rows: ",
        "limits.pace: expected one of body_bytes, rows, request_s",
    ):
        assert part in str(caught.value)


def test_the_environment_says_limits_as_json():
    assert load(None, dict(ENOUGH), {"EBLA_NODE_LIMITS": '{"burst": 7}'}).limits.burst == 7
    for wrong in ("7", "burst"):
        with pytest.raises(UsageError, match="limits: "):
            load(None, dict(ENOUGH), {"EBLA_NODE_LIMITS": wrong})


def test_names_of_tables_that_cannot_be_are_mistakes_among_others():
    settings = {"handlers_table": "jobs", "commands_table": "jobs", "runners_table": "runs"}
    with pytest.raises(UsageError) as caught:
        load(None, {**ENOUGH, "settings": settings, "shards": 0}, {})
    for part in ("settings.commands_table: ", "settings.runners_table: ", "shards: "):
        assert part in str(caught.value)
    with pytest.raises(UsageError, match=r"settings\.handlers_table: .* found 'My Jobs'"):
        load(None, {**ENOUGH, "settings": {"handlers_table": "My Jobs"}}, {})


def test_a_table_is_said_whole_by_the_first_that_says_it(tmp_path: Path):
    file = tmp_path / "node.toml"
    file.write_text(toml(ENOUGH) + "\n[limits]\nrequests_per_s = 20\nburst = 5\n[settings]\ntablets = 8\n")
    config = load(file, {"settings": {"replication": 2}}, {"EBLA_NODE_LIMITS": '{"burst": 7}'})
    assert (config.limits.requests_per_s, config.limits.burst) == (None, 7)
    assert config.settings == {"replication": 2}


def test_lists_of_directories_in_a_variable_are_separated_as_in_path(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    said = os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])
    assert load(None, dict(ENOUGH), {"EBLA_NODE_LOAD_FROM": said}).load_from == said.split(os.pathsep)


def test_nothing_is_read_of_the_environment_but_what_is_handed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EBLA_NODE_RACK", "of-the-process")
    for name in ("rack", "RACK", "ebla_node_rack"):
        monkeypatch.setenv(name, "of-another-program")
    assert load(None, dict(ENOUGH), {"rack": "no", "EBLA_NODE_SETTINGS": '{"tablets": 8}'}).rack == "rack1"
    assert load(None, dict(ENOUGH)).rack == "of-the-process"


def test_a_file_that_cannot_be_read_is_a_mistake_among_others(tmp_path: Path):
    broken, latin, absent = (tmp_path / name for name in ("broken.toml", "latin.toml", "absent.toml"))
    broken.write_text("name = ")
    latin.write_bytes('name = "caf\xe9"'.encode("latin-1"))
    for file in (broken, latin, absent, tmp_path):
        with pytest.raises(UsageError) as caught:
            load(file, {**ENOUGH, "shards": 0}, {"EBLA_NODE_LIMITS": "burst"})
        for part in (f"config: expected a TOML file, found {file}: ", "limits: expected a JSON object", "shards: "):
            assert part in str(caught.value)


def test_a_password_is_in_no_message():
    with pytest.raises(UsageError) as caught:
        load(None, {**ENOUGH, "catalog": "mysql://ebla:secret@db/ebla"}, {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "secrets"),
    [
        ({"catalog": "postgresql://ebla:secret@db/ebla"}, "it has the catalog"),
        ({"catalog": "postgresql://ebla@db/ebla?password=secret"}, "it has the catalog"),
        ({"secret": "of sixteen letters"}, "it has the secret"),
        ({"catalog": "postgresql://ebla:secret@db/ebla", "secret": "of sixteen letters"}, "the catalog and the secret"),
    ],
)
def test_a_file_with_a_secret_is_read_by_no_other_user(tmp_path: Path, said: dict[str, str], secrets: str):
    file = tmp_path / "node.toml"
    file.write_text(toml({**ENOUGH, **said}))
    file.chmod(0o604)
    with pytest.raises(UsageError) as caught:
        load(file, {"shards": 0}, {})
    for part in (f"{secrets}, found {file} of mode 604; chmod 600 {file}, or say insecure", "shards: "):
        assert part in str(caught.value)
    for insecure in ({"EBLA_NODE_INSECURE": "true"}, {"EBLA_NODE_INSECURE": "1"}):
        assert load(file, {}, insecure).name == "n1"
    with pytest.raises(UsageError, match="config: expected a file that no other user reads"):
        load(file, {}, {"EBLA_NODE_INSECURE": "false"})
    file.chmod(0o600)
    assert load(file, {}, {}).name == "n1"


def test_a_file_without_a_secret_may_be_read_by_everyone(tmp_path: Path):
    file = tmp_path / "node.toml"
    file.write_text(toml(ENOUGH))
    file.chmod(0o644)
    assert load(file, {}, {"EBLA_NODE_SECRET": "of sixteen letters"}).name == "n1"


def test_the_key_of_a_node_is_read_by_no_other_user(tmp_path: Path):
    files = {name: tmp_path / name for name in ("tls_cert", "tls_key")}
    for file in files.values():
        file.touch()
        file.chmod(0o644)
    given = {**ENOUGH, **{name: str(file) for name, file in files.items()}}
    with pytest.raises(UsageError, match=r"tls_key: expected .* as it is the key of the node, found .* of mode 644;"):
        load(None, given, {})
    assert load(None, {**given, "insecure": True}, {}).address.has_tls
    files["tls_key"].chmod(0o400)
    assert load(None, given, {}).address.has_tls


@pytest.mark.parametrize(("owner", "mode", "is_exposed"), [(0, 0o640, False), (0, 0o660, True), (1, 0o640, True)])
def test_the_group_may_read_what_belongs_to_root(tmp_path: Path, owner: int, mode: int, is_exposed: bool):
    file = tmp_path / "key"
    file.touch()
    file.chmod(mode)
    found = SimpleNamespace(st_mode=file.stat().st_mode, st_uid=owner)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "stat", lambda path: found)
        assert (exposed(file, "it is a key") is not None) is is_exposed


def test_a_founder_means_the_cluster_that_it_founds():
    assert load(None, {**ENOUGH, "found": "shop"}, {"EBLA_NODE_CLUSTER": "shop"}).cluster == "shop"
    with pytest.raises(UsageError, match="cluster: expected shop, which `found` says, found store"):
        load(None, {**ENOUGH, "found": "shop", "cluster": "store"}, {})


def test_a_local_root_needs_a_secret_a_directory_and_a_spark_of_this_machine():
    given = {**ENOUGH, "local_root": True}
    config = load(None, {**given, "secret": "of sixteen letters"}, {})
    assert config.connect_settings()["local_root"] is True
    assert load(None, {**ENOUGH, "secret": "of sixteen letters"}, {"EBLA_NODE_LOCAL_ROOT": "true"}).local_root
    with pytest.raises(UsageError) as caught:
        load(None, {**given, "root": "s3://bucket/n1", "spark_master": "spark://host:7077"}, {})
    for part in (
        "secret: expected one",
        "root: expected a directory of this machine",
        "spark_master: expected local[N]",
    ):
        assert part in str(caught.value)
