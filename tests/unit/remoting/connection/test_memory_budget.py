from rocketpy.remoting.connection.memory_budget import MemoryBudget


class Peer:
    def __init__(self, held: int = 0, unsent: int = 0, *, is_stalled: bool = False) -> None:
        self.held, self.unsent_bytes, self.is_stalled = held, unsent, is_stalled
        self.lost: int | None = None

    def held_bytes(self) -> int:
        return self.held + self.unsent_bytes

    def abort_for_memory(self, held_bytes: int) -> None:
        self.lost = held_bytes


def counted(budget: MemoryBudget, *peers: Peer) -> None:
    for peer in peers:
        budget.count(peer)


def test_within_the_limit_nobody_loses() -> None:
    budget = MemoryBudget(1000)
    peers = [Peer(500), Peer(500)]
    counted(budget, *peers)
    assert budget.held_bytes == 1000
    assert [peer.lost for peer in peers] == [None, None]


def test_over_the_limit_those_who_hold_most_lose_first_and_only_as_many_as_needed() -> None:
    budget = MemoryBudget(1000)
    greedy, greedier, modest = Peer(300), Peer(500), Peer(200)
    counted(budget, greedy, greedier, modest)
    late = Peer(250)
    counted(budget, late)
    assert [peer.lost for peer in (greedy, greedier, modest, late)] == [None, 500, None, None]
    assert budget.held_bytes == 750


def test_what_others_get_meanwhile_counts_beside_those_who_are_ending() -> None:
    budget = MemoryBudget(1000)
    closing, other = Peer(600), Peer(300)
    counted(budget, closing, other)
    budget.end(closing)
    assert not budget.is_exhausted
    other.held = 500
    counted(budget, other)
    assert budget.is_exhausted
    budget.release(closing)
    assert not budget.is_exhausted


def test_nobody_gets_more_until_those_cut_off_are_gone() -> None:
    budget = MemoryBudget(1000)
    greedy, other = Peer(800), Peer(500)
    counted(budget, greedy, other)
    assert greedy.lost == 800
    assert budget.is_exhausted
    assert budget.is_output_full()
    budget.count(greedy)
    assert budget.held_bytes == 500
    budget.release(greedy)
    assert not budget.is_exhausted
    assert not budget.is_output_full()


def test_old_numbers_cost_nobody_a_connection() -> None:
    budget = MemoryBudget(1000)
    sent_meanwhile = Peer(0, 900)
    counted(budget, sent_meanwhile)
    sent_meanwhile.unsent_bytes = 0
    counted(budget, Peer(900))
    assert sent_meanwhile.lost is None
    assert budget.held_bytes == 900


def test_a_released_holder_counts_no_more() -> None:
    budget = MemoryBudget(1000)
    peer = Peer(500, 100)
    counted(budget, peer)
    budget.release(peer)
    budget.release(peer)
    assert budget.held_bytes == 0


def test_output_is_full_at_half_of_the_limit_until_peers_took_it() -> None:
    budget = MemoryBudget(1000)
    peer = Peer(0, 501)
    counted(budget, peer, Peer(400))
    assert budget.is_output_full()
    peer.unsent_bytes = 100  # taken without a word
    assert not budget.is_output_full()


def test_room_for_output_is_made_by_those_who_take_nothing() -> None:
    budget = MemoryBudget(1000)
    slow, stuck, more_stuck = (
        Peer(0, 300),
        Peer(0, 200, is_stalled=True),
        Peer(0, 250, is_stalled=True),
    )
    counted(budget, slow, stuck, more_stuck)
    budget.make_room_for_output()
    assert [peer.lost for peer in (slow, stuck, more_stuck)] == [None, None, 250]
    assert not budget.is_output_full()


def test_no_limit() -> None:
    budget = MemoryBudget(0)
    counted(budget, Peer(1 << 40, 1 << 40))
    assert not budget.is_output_full()


def test_what_peers_have_taken_meanwhile_ends_the_exhaustion_though_nobody_leaves() -> None:
    budget = MemoryBudget(1000)
    growing, leaving = [Peer(0, 280), Peer(0, 280)], Peer(50)
    counted(budget, *growing, leaving)
    for peer in growing:
        peer.unsent_bytes = 520
    assert budget.is_output_full()
    budget.end(leaving)
    budget.release(leaving)
    assert budget.is_exhausted
    for peer in growing:
        peer.unsent_bytes = 0
    counted(budget, *growing)
    assert budget.held_bytes == 0
    assert not budget.is_exhausted
    assert not budget.is_output_full()
