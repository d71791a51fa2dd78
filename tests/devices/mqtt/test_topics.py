"""Names of topics, and the way back from a topic to its meaning."""

import pytest

from devices.mqtt.topics import CommandTopic, Topics

TOPICS = Topics("earshot", "home", "homeassistant")


@pytest.mark.parametrize("name", ["announce", "start_conversation", "stop", "volume"])
def test_a_command_of_a_device_is_found_again(name: str) -> None:
    topic = f"earshot/home/device/dev_1/{name}"
    found = TOPICS.parse_command(topic)
    assert found is not None
    assert (found.name, found.device_id) == (name, "dev_1")
    assert TOPICS.command("dev_1", found.name) == topic


def test_the_servers_own_topic_announces_everywhere() -> None:
    assert TOPICS.parse_command("earshot/home/announce") == CommandTopic("announce", "")


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "earshot/home/device//announce",
        "earshot/home/device/dev_1",
        "earshot/home/device/dev_1/reboot",
        "earshot/home/device/dev_1/announce/more",
        "earshot/home/device/dev\n1/announce",
        f"earshot/home/device/{'x' * 65}/announce",
        "earshot/other/device/dev_1/announce",
        "earshot/home/device/dev_1/state",
    ],
)
def test_other_topics_are_no_commands(topic: str) -> None:
    assert TOPICS.parse_command(topic) is None


def test_states_tell_their_owners() -> None:
    assert TOPICS.owner_of_state(TOPICS.state("device", "dev_1")) == ("device", "dev_1")
    assert TOPICS.owner_of_state(TOPICS.state("person", "spk_1")) == ("person", "spk_1")
    for topic in ("earshot/home/state", "earshot/home/device/a/b/state", "homeassistant/status"):
        assert TOPICS.owner_of_state(topic) is None


def test_two_servers_at_one_broker_share_no_topic_and_no_id() -> None:
    other = Topics("earshot", "office", "homeassistant")
    for one, two in zip(TOPICS.subscriptions()[:-1], other.subscriptions()[:-1], strict=True):
        assert one != two
    assert TOPICS.config("dev_1") != other.config("dev_1")
    assert TOPICS.unique_id() != other.unique_id()
