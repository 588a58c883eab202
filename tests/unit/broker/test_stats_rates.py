from rocketpy.broker.stats_rates import RateRing, format_rates


def test_no_rate_before_the_second_sample() -> None:
    ring = RateRing()
    assert ring.rates() == (0.0, 0.0, 0.0)
    ring.sample(1_000, 5)
    assert ring.rates() == (0.0, 0.0, 0.0)


def test_a_short_history_is_used_whole() -> None:
    ring = RateRing()
    ring.sample(0, 0)
    ring.sample(2_000, 10)
    assert ring.rates() == (5.0, 5.0, 5.0)


def test_text_form() -> None:
    assert format_rates((1.0, 0.5, 0.0)) == "1.0 0.5 0.0"
