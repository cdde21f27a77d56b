"""Listings: pages of one list are consistent despite changes in between, and are kept for a short time."""

from shared.bounded import KEPT_SECONDS, MAX_LISTINGS, Listings


def test_pages_are_consistent_while_the_state_changes() -> None:
    listings: Listings[int] = Listings()
    things = list(range(5))
    page = listings.page("", 0, 2, lambda: list(things), 0.0)
    assert page is not None
    assert (page.total, list(page.items), page.next) == (5, [0, 1], 2)
    things.clear()
    seen = list(page.items)
    while page.next:
        page = listings.page(page.listing, page.next, 2, lambda: list(things), 1.0)
        assert page is not None
        seen += page.items
    assert seen == [0, 1, 2, 3, 4]


def test_an_empty_list_is_one_page() -> None:
    page = Listings[int]().page("", 0, 10, list, 0.0)
    assert page is not None
    assert page.listing
    assert (page.total, list(page.items), page.next) == (0, [], 0)


def test_invalid_page_numbers_are_harmless() -> None:
    listings: Listings[int] = Listings()
    page = listings.page("", -3, -1, lambda: [1, 2, 3], 0.0)
    assert page is not None
    assert list(page.items) == [1]
    beyond = listings.page(page.listing, 99, 5, list, 0.0)
    assert beyond is not None
    assert (list(beyond.items), beyond.next) == ([], 0)


def test_unused_listings_expire() -> None:
    listings: Listings[int] = Listings()
    page = listings.page("", 0, 1, lambda: [1, 2], 0.0)
    assert page is not None
    assert listings.page(page.listing, 1, 1, list, KEPT_SECONDS - 1) is not None
    listings.expire(KEPT_SECONDS + 1)
    assert len(listings) == 1
    listings.expire(2 * KEPT_SECONDS)
    assert len(listings) == 0
    assert listings.page(page.listing, 1, 1, list, 2 * KEPT_SECONDS) is None


def test_only_the_most_recent_listings_are_kept() -> None:
    listings: Listings[int] = Listings()
    first = listings.page("", 0, 1, lambda: [1, 2], 0.0)
    assert first is not None
    for _ in range(MAX_LISTINGS):
        listings.page("", 0, 1, lambda: [1, 2], 0.0)
    assert len(listings) == MAX_LISTINGS
    assert listings.page(first.listing, 1, 1, list, 0.0) is None
