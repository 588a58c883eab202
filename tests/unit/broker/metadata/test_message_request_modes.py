"""Message request modes and messageRequestMode.json."""

from rocketpy.broker.metadata.message_request_modes import MessageRequestModes
from rocketpy.proto.bodies.group import SetMessageRequestModeRequestBody
from tests.unit.broker.fakes import MemoryFile


def mode(topic: str, group: str = "g", name: str = "PULL") -> SetMessageRequestModeRequestBody:
    return SetMessageRequestModeRequestBody(topic, group, name)


def test_request_modes_full_table_refuses_new_mode() -> None:
    file = MemoryFile()
    modes = MessageRequestModes(file, max_modes=2)
    assert [modes.put(mode(topic)) for topic in ("T", "U", "V")] == [True, True, False]
    assert modes.put(mode("T", name="POP")), "what is there is changed"
    modes.remove_topic("T")
    modes.remove_topic("nobody")
    assert modes.put(mode("V", "h"))
    assert modes.snapshot().message_request_mode_map.keys() == {"U", "V"}


def test_request_modes_unchanged_mode_is_not_written() -> None:
    file = MemoryFile()
    modes = MessageRequestModes(file)
    modes.put(mode("T"))
    modes.put(mode("T"))
    assert file.saves == 1
    again = MessageRequestModes(file)
    again.load()
    assert again.snapshot().message_request_mode_map == {"T": {"g": mode("T")}}
