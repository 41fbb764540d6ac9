"""Secure aggregation (Bonawitz et al., CCS 2017): the coordinator gets the weighted mean of the sites' uploads, and no
upload of a single site.

settings.py     what all agree on: threshold, weights        fixed_point.py  numbers as words of 32 bits
shamir.py       a secret in shares                           masks.py        keys, seeds and masks
randomness.py   where secrets come from                      signing.py      what sites vouch for, and how
layout.py       a payload as one row of numbers              store.py        what a site remembers
sharing.py      a site's secrets in sealed shares            site.py         the site's five answers
combinations.py what does not go with it
total.py        the sum, while it is masked and after        coordinator.py  the coordinator's five exchanges

What travels is in secure_payloads.py beside this folder.
"""
