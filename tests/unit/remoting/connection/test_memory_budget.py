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


def test_budget_within_limit_aborts_no_holder() -> None:
    budget = MemoryBudget(1000)
    peers = [Peer(500), Peer(500)]
    counted(budget, *peers)
    assert budget.held_bytes == 1000
    assert [peer.lost for peer in peers] == [None, None]


def test_budget_over_limit_aborts_greediest_holders_as_needed() -> None:
    budget = MemoryBudget(1000)
    greedy, greedier, modest = Peer(300), Peer(500), Peer(200)
    counted(budget, greedy, greedier, modest)
    late = Peer(250)
    counted(budget, late)
    assert [peer.lost for peer in (greedy, greedier, modest, late)] == [None, 500, None, None]
    assert budget.held_bytes == 750


def test_budget_counts_other_holders_beside_closing_ones() -> None:
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


def test_budget_stays_exhausted_until_aborted_holders_are_gone() -> None:
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


def test_budget_recounts_holders_before_aborting() -> None:
    budget = MemoryBudget(1000)
    sent_meanwhile = Peer(0, 900)
    counted(budget, sent_meanwhile)
    sent_meanwhile.unsent_bytes = 0
    counted(budget, Peer(900))
    assert sent_meanwhile.lost is None
    assert budget.held_bytes == 900


def test_budget_forgets_released_holder() -> None:
    budget = MemoryBudget(1000)
    peer = Peer(500, 100)
    counted(budget, peer)
    budget.release(peer)
    budget.release(peer)
    assert budget.held_bytes == 0


def test_budget_output_is_full_at_half_of_limit_until_taken() -> None:
    budget = MemoryBudget(1000)
    peer = Peer(0, 501)
    counted(budget, peer, Peer(400))
    assert budget.is_output_full()
    peer.unsent_bytes = 100  # taken without a word
    assert not budget.is_output_full()


def test_budget_aborts_stalled_holders_to_make_room_for_output() -> None:
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


def test_budget_without_limit_aborts_no_holder() -> None:
    budget = MemoryBudget(0)
    counted(budget, Peer(1 << 40, 1 << 40))
    assert not budget.is_output_full()


def test_budget_recovers_when_peers_take_output() -> None:
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
