"""Secure aggregation (Bonawitz et al., CCS 2017): the coordinator gets the weighted sum of the sites' uploads, and no
upload of a single site.

settings.py     what all agree on: threshold, weights        fixed_point.py  numbers as words of 32 bits
shamir.py       a secret in shares                           masks.py        keys, seeds and masks
layout.py       a payload as one row of numbers              store.py        what a site remembers of an attempt
site.py         the site's four answers                      coordinator.py  the coordinator's four exchanges

What travels is in secure_payloads.py beside this folder.
"""
