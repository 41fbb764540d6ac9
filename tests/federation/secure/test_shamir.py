"""Any t shares give the secret, and fewer say nothing: checked against all polynomials of a small field."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from grandrounds.federation.secure import shamir


def test_any_t_of_n_shares_give_the_secret() -> None:
    rng = random.Random(1)
    for n, t in ((2, 2), (3, 2), (5, 3), (7, 5), (9, 9)):
        secret = rng.randrange(shamir.PRIME)
        shares = shamir.split(secret, t, range(1, n + 1), lambda i: rng.randrange(shamir.PRIME))
        for size in range(t, n + 1):
            for chosen in combinations(shares, size):
                assert shamir.combine({place: shares[place] for place in chosen}) == secret


def test_fewer_shares_fit_every_secret_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the field of 7: whatever two shares of three are seen, each secret has the same number of polynomials."""
    monkeypatch.setattr(shamir, "PRIME", 7)
    seen: dict[tuple[int, int], list[int]] = {}
    for secret, *coefficients in product(range(7), repeat=3):
        shares = shamir.split(secret, 3, (1, 2, 3), lambda i: coefficients[i - 1])  # noqa: B023
        assert shares == {x: (secret + coefficients[0] * x + coefficients[1] * x * x) % 7 for x in (1, 2, 3)}
        assert shamir.combine(shares) == secret
        seen.setdefault((shares[1], shares[2]), []).append(secret)
    assert len(seen) == 49
    assert all(sorted(secrets) == list(range(7)) for secrets in seen.values())


def test_the_field_is_the_largest_prime_of_256_bits() -> None:
    assert shamir.PRIME.bit_length() == 256
    rng = random.Random(1)
    assert all(pow(rng.randrange(2, shamir.PRIME), shamir.PRIME - 1, shamir.PRIME) == 1 for _ in range(20))
    for larger in range(shamir.PRIME + 2, 2**256, 2):
        assert any(larger % small == 0 for small in range(3, 2000, 2)) or pow(2, larger - 1, larger) != 1


@pytest.mark.parametrize(
    ("secret", "threshold", "places"), [(2**256, 2, (1, 2)), (1, 3, (1, 2)), (1, 1, (0, 1)), (1, 2, (1, 1, 2))]
)
def test_what_can_not_be_shared_is_refused(secret: int, threshold: int, places: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="below the prime"):
        shamir.split(secret, threshold, places, lambda i: 1)
