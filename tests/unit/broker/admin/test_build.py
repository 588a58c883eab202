from rocketpy.broker.admin import build_processors
from tests.unit.broker.admin.kit import Kit

# What mqadmin and consoles of 5.4.0 send to a broker; see the wire reference of each command.
EXPECTED = {
    17, 18, 21, 25, 26, 28, 43, 45, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223, 225, 300, 303,
    305, 306, 307, 308, 309, 314, 315, 316, 317, 321, 328, 329, 343, 345, 351, 352, 353, 907, 908,
    1007, 2001, 2002, 2003, 2004, *range(3001, 3011),
}  # fmt: skip


def test_every_admin_code_has_one_processor(kit: Kit) -> None:
    assert set(build_processors(kit.parts)) == EXPECTED
